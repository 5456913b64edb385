-- +goose Up

-- Calls to a project's status webhooks are notifications like others, of a hidden
-- project beside it: its name with a tilde before it, which no key can have. The
-- rule is wider than the one before, so no row that is there needs to be looked at.
-- Its length is told apart: each notification is checked, and counting to 63 within
-- the pattern took seven times as long as the rest of it.
alter table dispatcher.notifications
  drop constraint notifications_project_check,
  add constraint notifications_project_check
    check (project ~ '^~?[a-z0-9][a-z0-9_-]*$' and length(ltrim(project, '~')) <= 63) not valid;

-- Endpoints that are told what happens. Of the events after after_event each whose
-- type is in events is sent, all of them if that is empty. secret_old signs beside
-- secret until the instant that is named. Secrets stand here as they are: they
-- sign, so a hash would not do.
create table dispatcher.webhooks (
  id               uuid        not null primary key,
  project          text        not null check (project ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
  url              text        not null check (length(url) between 1 and 2048),
  description      text        not null default '' check (length(description) <= 200),
  events           text[]      not null,
  secret           text        not null,
  secret_old       text,
  old_until        timestamptz,
  after_event      bigint      not null,
  created_at       timestamptz not null,
  failing_since    timestamptz,
  failed_at        timestamptz,
  failures         integer     not null default 0 check (failures >= 0),
  disabled_at      timestamptz,
  disabled_because text,
  check ((secret_old is null) = (old_until is null)),
  check ((disabled_at is null) = (disabled_because is null))
) with (fillfactor = 50);
create index webhooks_by_project on dispatcher.webhooks (project, id);
create index webhooks_by_start on dispatcher.webhooks (after_event) where disabled_at is null;

-- How far the events have been turned into calls. Whoever holds the one row's lock
-- is the consumer, and moves it in the transaction that writes the calls.
create table dispatcher.webhook_cursor (
  only_one boolean not null primary key default true check (only_one),
  position bigint  not null
);
insert into dispatcher.webhook_cursor (position) select coalesce(max(id), 0) from dispatcher.events;

-- +goose Down
drop table dispatcher.webhook_cursor, dispatcher.webhooks;
delete from dispatcher.deliveries where project like '~%';
delete from dispatcher.attempts a using dispatcher.notifications n where n.id = a.notification_id and n.project like '~%';
delete from dispatcher.notifications where project like '~%';
alter table dispatcher.notifications
  drop constraint notifications_project_check,
  add constraint notifications_project_check check (project ~ '^[a-z0-9][a-z0-9_-]{0,62}$') not valid;
