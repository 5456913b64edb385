-- +goose Up

-- A notification is written once, when it is accepted, and never updated:
-- status is what its deliveries say. Addresses and content are json, not jsonb:
-- nothing in SQL looks inside, and json costs less to store.
create table dispatcher.notifications (
  id         uuid        not null primary key,
  project    text        not null check (project ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
  priority   smallint    not null check (priority between 1 and 4),
  mode       text        not null check (mode in ('first', 'all')),
  chain      json        not null check (json_typeof(chain) = 'array'),
  recipient  json        not null,
  content    json        not null,
  reference  text        check (length(reference) between 1 and 255),
  metadata   json,
  trace      text        check (length(trace) <= 128),
  created_at timestamptz not null,
  send_at    timestamptz not null check (send_at >= created_at),
  expires_at timestamptz not null check (expires_at > send_at)
);
create index notifications_by_project on dispatcher.notifications (project, id);
create index notifications_by_reference on dispatcher.notifications (project, reference, id) where reference is not null;

-- What the application or an operator said about a notification as a whole.
-- Most notifications have no row here.
create table dispatcher.marks (
  notification_id uuid        not null primary key references dispatcher.notifications (id) on delete cascade,
  canceled_at     timestamptz,
  acknowledged_at timestamptz,
  check (canceled_at is not null or acknowledged_at is not null)
);

-- No foreign key leads from deliveries or attempts to their notification: to check
-- them took a third of what it costs to insert the one and half of the other. A
-- delivery is only written beside its notification or from it under lock, and who
-- deletes a notification deletes both.
--
-- A delivery is one step to one target: narrow, and updated twice in the plain
-- case (claim, record). Both updates are HOT: no index, not even a partial one,
-- names a column that they change, and a page has room for a second version of
-- each of its rows, wider by what a claim adds: under load all of them are
-- claimed in one statement, and with less room half of the updates leave the page
-- and write to both indexes. turn is the fence: whatever changes what happens
-- next adds one, and whoever holds an older one is too late.
create table dispatcher.deliveries (
  notification_id uuid        not null,
  step            smallint    not null check (step between 0 and 31),
  target          smallint    not null check (target between 0 and 999),
  targets         smallint    not null check (targets > target),
  round           smallint    not null default 0 check (round >= 0),
  turn            integer     not null default 0 check (turn >= 0),
  priority        smallint    not null check (priority between 1 and 4),
  final           boolean     not null default false,
  attempts        smallint    not null default 0 check (attempts >= 0),
  throttles       smallint    not null default 0 check (throttles >= 0),
  crashes         smallint    not null default 0 check (crashes >= 0),
  repeats         smallint    not null default 0 check (repeats >= 0),
  calls           smallint    not null default 0 check (calls >= 0),
  job_id          bigint,
  started_at      timestamptz not null,
  ends_at         timestamptz not null,
  expires_at      timestamptz not null,
  claimed_at      timestamptz,
  finished_at     timestamptz,
  claimed_by      uuid,
  claim_id        uuid,
  address         bytea       not null check (length(address) = 16),
  project         text        not null,
  channel         text        not null check (channel in ('push', 'sms', 'whatsapp', 'email', 'slack', 'webhook')),
  status          text        not null check (status in ('waiting', 'queued', 'sending', 'unknown', 'sent', 'failed',
                                                         'delivered', 'read', 'expired', 'canceled', 'suppressed')),
  started_because text        not null,
  because         text,
  stop            text        check (stop in ('canceled', 'acknowledged', 'superseded')),
  account         text,
  pinned          text,
  provider        text,
  scopes          text[],
  primary key (notification_id, step, target),
  check (ends_at <= expires_at),
  check ((claimed_by is null) = (claimed_at is null)),
  check ((status = 'sending') = (claimed_by is not null)),
  check (final = (finished_at is not null)),
  check (not final or status not in ('waiting', 'queued', 'sending'))
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index deliveries_by_address on dispatcher.deliveries (address);

-- Why a delivery is not moving, and until when. River holds only work that can
-- run now; everything else is a row here. A wait that is held moves when its
-- scope has room, and by itself only when the step's time is over: until is when
-- that is expected, due when the row moves whatever happens. So a hundred
-- thousand rows behind an open breaker are looked at by nobody. ask_at is when the
-- provider of a message is asked for the receipt that the row waits for, null where
-- it is not.
create table dispatcher.waits (
  notification_id uuid        not null,
  step            smallint    not null,
  target          smallint    not null,
  turn            integer     not null,
  priority        smallint    not null,
  held            boolean     not null,
  due             timestamptz not null,
  until           timestamptz not null,
  since           timestamptz not null,
  project         text        not null,
  channel         text        not null,
  reason          text        not null check (reason in ('scheduled', 'backoff', 'throttled', 'breaker_open', 'paused', 'capacity',
                                                         'budget', 'account_rejected', 'receipt', 'reconcile', 'quiet_hours')),
  scope           text        not null default '' check (length(scope) <= 1000),
  ask_at          timestamptz,
  primary key (notification_id, step, target),
  foreign key (notification_id, step, target) references dispatcher.deliveries on delete cascade,
  check (not held or scope <> '')
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index waits_by_due on dispatcher.waits (priority, due);
create index waits_by_hold on dispatcher.waits (scope, priority, project, since) where held;
create index waits_by_ask on dispatcher.waits (ask_at) where ask_at is not null;

-- One network call, or what is left of one whose worker died. At most one per
-- delivery and turn.
create table dispatcher.attempts (
  notification_id     uuid        not null,
  step                smallint    not null,
  target              smallint    not null,
  turn                integer     not null,
  n                   smallint    not null check (n > 0),
  http_status         smallint,
  duration_us         bigint      not null check (duration_us >= 0),
  retry_after_ms      bigint      check (retry_after_ms >= 0),
  started_at          timestamptz not null,
  id                  uuid        not null,
  node                uuid        not null,
  possible_duplicate  boolean     not null default false,
  account             text        not null,
  outcome             text        not null check (outcome in ('accepted', 'unknown', 'throttled', 'provider_unavailable',
                                    'recipient_unavailable', 'recipient_rejected', 'message_rejected', 'account_rejected',
                                    'suppressed', 'not_attempted', 'expired')),
  provider_code       text        check (length(provider_code) <= 64),
  provider_message_id text        check (length(provider_message_id) <= 256),
  detail              text        check (length(detail) <= 256),
  primary key (notification_id, step, target, turn)
);

-- What happened, in commit order: a writer takes the events' advisory lock as
-- its last act before it inserts here and commits, so a reader that has seen id
-- n will never meet a smaller one later. until is when a wait is expected to end.
create table dispatcher.events (
  id              bigint      generated always as identity primary key,
  at              timestamptz not null,
  until           timestamptz,
  notification_id uuid        not null,
  step            smallint,
  target          smallint,
  final           boolean     not null default false,
  project         text        not null,
  type            text        not null,
  because         text
);
create index events_by_notification on dispatcher.events (notification_id, id);

-- Addresses that may not, or can not, be written to.
create table dispatcher.suppressions (
  project    text        not null,
  channel    text        not null,
  address    bytea       not null check (length(address) = 16),
  reason     text        not null,
  source     text        not null,
  created_at timestamptz not null,
  until      timestamptz,
  primary key (project, channel, address)
);
create index suppressions_by_end on dispatcher.suppressions (until) where until is not null;

create table dispatcher.idempotency_keys (
  project         text        not null,
  route           text        not null,
  key             text        not null check (length(key) between 1 and 255),
  fingerprint     bytea       not null check (length(fingerprint) = 32),
  notification_id uuid        not null,
  answer          bytea       not null,
  expires_at      timestamptz not null,
  primary key (project, route, key)
);
create index idempotency_keys_by_expiry on dispatcher.idempotency_keys (expires_at);

create table dispatcher.api_keys (
  id           uuid        not null primary key,
  project      text        not null check (project ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
  name         text        not null check (length(name) <= 100),
  hash         bytea       not null unique check (length(hash) = 32),
  hint         text        not null check (length(hint) <= 16),
  scopes       text[]      not null check (cardinality(scopes) > 0 and scopes <@ array['send', 'read', 'admin']),
  created_at   timestamptz not null,
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz
);
create index api_keys_by_project on dispatcher.api_keys (project, id);

-- The processes that work. A node holds an advisory lock on lock_key and writes
-- beat_at each second; see dispatch.Node for when it counts as dead.
create table dispatcher.nodes (
  id         uuid        not null primary key,
  lock_key   bigint      not null unique,
  name       text        not null,
  started_at timestamptz not null,
  beat_at    timestamptz not null
);

-- Channels that an operator paused.
create table dispatcher.pauses (
  channel text        not null primary key,
  by      text        not null,
  reason  text        not null default '',
  since   timestamptz not null
);

-- River keeps work only; nothing here reads its args or metadata by content, and
-- these two indexes are a quarter of what a job costs.
drop index if exists dispatcher.river_job_args_index;
drop index if exists dispatcher.river_job_metadata_index;
alter table dispatcher.river_job set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- +goose Down
drop table dispatcher.pauses, dispatcher.nodes, dispatcher.api_keys, dispatcher.idempotency_keys, dispatcher.suppressions,
  dispatcher.events, dispatcher.attempts, dispatcher.waits, dispatcher.deliveries, dispatcher.marks, dispatcher.notifications;
