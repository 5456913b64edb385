-- +goose Up

-- Every change to the suppression list, whoever made it: one row each time that an
-- address is put there, that an entry is made to last longer, that it is lifted and
-- that its time is over. reason, source and until are the entry's, by_whom is the
-- operator where one did it, why what was said about it.
create table dispatcher.suppression_events (
  id      bigint      generated always as identity primary key,
  at      timestamptz not null,
  until   timestamptz,
  project text        not null,
  channel text        not null,
  address bytea       not null check (length(address) = 16),
  action  text        not null check (action in ('added', 'extended', 'lifted', 'expired')),
  reason  text        not null,
  source  text        not null,
  by_whom text        not null default '',
  why     text        not null default '' check (length(why) <= 500)
);
create index suppression_events_by_project on dispatcher.suppression_events (project, id);
create index suppression_events_by_address on dispatcher.suppression_events (address, id);
create index suppression_events_by_age on dispatcher.suppression_events (at);

-- What people said by way of an account: stop, start or a complaint, one row each.
-- Of stops and starts to one account the latest holds, and what was heard already is
-- not heard again, however late a provider repeats it. word is a hash of the
-- provider's id of the message that said so.
create table dispatcher.consents (
  said_at  timestamptz not null,
  heard_at timestamptz not null,
  account  text        not null,
  channel  text        not null,
  reason   text        not null,
  address  bytea       not null check (length(address) = 16),
  word     bytea       not null check (length(word) = 16),
  primary key (account, channel, address, word)
);
create index consents_by_age on dispatcher.consents (heard_at);

-- The stops and complaints of people that hold, until they start again or an operator
-- lifts them. The list shows one entry of an address: where that is another one, the
-- stop takes its place when it is lifted.
create table dispatcher.stops (
  said_at timestamptz not null,
  project text        not null,
  channel text        not null,
  address bytea       not null check (length(address) = 16),
  account text        not null,
  reason  text        not null,
  primary key (channel, address, project, account, reason)
);

-- How the list is walked, newest first.
create index suppressions_by_age on dispatcher.suppressions (project, created_at, channel, address);

-- Deliveries that ended because an address could not be reached, counted until one
-- gets there. Only such an end writes here.
create table dispatcher.address_strikes (
  first_at timestamptz not null,
  last_at  timestamptz not null check (last_at >= first_at),
  strikes  smallint    not null check (strikes > 0),
  project  text        not null,
  channel  text        not null,
  address  bytea       not null check (length(address) = 16),
  primary key (project, channel, address)
) with (fillfactor = 70);
create index address_strikes_by_age on dispatcher.address_strikes (last_at);

-- +goose Down
drop table dispatcher.address_strikes;
drop index dispatcher.suppressions_by_age;
drop table dispatcher.stops, dispatcher.consents;
drop table dispatcher.suppression_events;
