-- +goose Up

-- What providers say later about messages that they took, as it came. Whoever
-- takes one in only writes it here, which waits for nobody; a loop applies it to
-- its delivery afterwards. notification_id is null as long as nobody knows whose
-- the message is: it may be told of before the call that sent it is recorded.
-- look_at is when an unapplied one is looked at next, subject what tells the
-- messages of an account apart, so that what is said twice is kept once.
create table dispatcher.receipts (
  id              uuid        not null primary key,
  notification_id uuid        references dispatcher.notifications (id) on delete cascade,
  step            smallint    check (step >= 0),
  target          smallint    check (target >= 0),
  suppress        boolean     not null default false,
  suppress_for_s  bigint      check (suppress_for_s > 0),
  at              timestamptz,
  received_at     timestamptz not null,
  look_at         timestamptz not null,
  applied_at      timestamptz,
  attempt         uuid,
  account         text        not null check (length(account) between 1 and 200),
  subject         text        not null check (length(subject) between 1 and 256),
  message_id      text        check (length(message_id) between 1 and 256),
  status          text        not null check (status in ('sent', 'delivered', 'read', 'failed')),
  outcome         text        check (outcome in ('accepted', 'unknown', 'throttled', 'provider_unavailable', 'recipient_unavailable',
                                'recipient_rejected', 'message_rejected', 'account_rejected', 'suppressed', 'not_attempted', 'expired')),
  code            text        not null default '' check (length(code) <= 64),
  detail          text        check (length(detail) <= 256),
  unique (account, subject, status, code),
  check ((notification_id is null) = (step is null) and (step is null) = (target is null)),
  check (applied_at is null or notification_id is not null),
  check ((status = 'failed') = (outcome is not null)),
  check (suppress or suppress_for_s is null)
);
create index receipts_by_notification on dispatcher.receipts (notification_id) where notification_id is not null;
create index receipts_by_look on dispatcher.receipts (look_at) where applied_at is null;
create index attempts_by_message on dispatcher.attempts (provider_message_id, account) where provider_message_id is not null;

-- +goose Down
drop index dispatcher.attempts_by_message;
drop table dispatcher.receipts;
