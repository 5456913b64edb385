-- +goose Up

-- The breakers that all processes share. A scope without a row is closed, so the
-- table is as large as the number of scopes that were in trouble lately. Its
-- instants are this database's clock.
create table dispatcher.breakers (
  scope        text        not null primary key check (length(scope) <= 200),
  state        text        not null check (state in ('closed', 'open', 'half_open')),
  generation   bigint      not null check (generation >= 0),
  reason       text        not null,
  changed_at   timestamptz not null,
  open_count   integer     not null,
  trips        integer     not null default 0,
  code         text        check (length(code) <= 64),
  open_until   timestamptz,
  probes       bigint      not null,
  probing      boolean     not null,
  lease_until  timestamptz,
  successes    integer     not null,
  neutral      integer     not null,
  forced_by    text,
  forced_why   text,
  forced_until timestamptz,
  updated_at   timestamptz not null,
  check ((forced_by is null) = (forced_why is null)),
  check (not probing or state = 'half_open' and lease_until is not null)
) with (fillfactor = 50);
create index breakers_by_update on dispatcher.breakers (updated_at);

-- Every change of a breaker, and who made it.
create table dispatcher.breaker_events (
  id         bigint      generated always as identity primary key,
  at         timestamptz not null,
  generation bigint      not null,
  scope      text        not null,
  from_state text        not null,
  to_state   text        not null,
  reason     text        not null,
  code       text        check (length(code) <= 64),
  node       text        not null,
  by_whom    text,
  why        text,
  until      timestamptz
);
create index breaker_events_by_scope on dispatcher.breaker_events (scope, id);
create index breaker_events_by_time on dispatcher.breaker_events (at);

-- What each process saw of a scope lately. Losing it in a crash of the database
-- costs a few more failures.
create unlogged table dispatcher.breaker_evidence (
  scope      text        not null,
  node       uuid        not null,
  generation bigint      not null,
  streak     integer     not null,
  calls      integer     not null,
  failures   integer     not null,
  slow       integer     not null,
  updated_at timestamptz not null,
  primary key (scope, node)
) with (fillfactor = 50);
create index breaker_evidence_by_update on dispatcher.breaker_evidence (updated_at);

-- Until when a provider asked to be left alone.
create table dispatcher.gates (
  scope      text        not null primary key check (length(scope) <= 200),
  not_before timestamptz not null,
  updated_at timestamptz not null
) with (fillfactor = 50);
create index gates_by_update on dispatcher.gates (updated_at);

-- What operators did by hand, and why.
create table dispatcher.operator_actions (
  id      bigint      generated always as identity primary key,
  at      timestamptz not null,
  action  text        not null check (action in ('open', 'close', 'reset', 'pause', 'resume')),
  target  text        not null,
  by_whom text        not null check (length(by_whom) between 1 and 200),
  why     text        not null check (length(why) <= 1000),
  until   timestamptz
);

-- Waits that end when a breaker closes, though nothing holds them.
create index waits_by_account on dispatcher.waits (scope) where reason = 'account_rejected';

-- +goose Down
drop index dispatcher.waits_by_account;
drop table dispatcher.operator_actions, dispatcher.gates, dispatcher.breaker_evidence, dispatcher.breaker_events, dispatcher.breakers;
