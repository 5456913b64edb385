-- +goose Up

-- An operator's retry is one more thing that was said about a notification as a
-- whole: how many times it was started again, and until when it may be sent
-- since. The notification's own row stays as it was accepted.
alter table dispatcher.marks
  drop constraint marks_check,
  add column round      smallint not null default 0 check (round >= 0),
  add column retried_at timestamptz,
  add column expires_at timestamptz,
  add check (canceled_at is not null or acknowledged_at is not null or retried_at is not null),
  add check ((retried_at is null) = (round = 0) and (retried_at is null) = (expires_at is null));

-- Batches that came with an Idempotency-Key. Whoever runs one holds a lease, so
-- that a batch whose runner died can be taken over; results is null until all of
-- its rows have one.
create table dispatcher.batches (
  project     text        not null,
  key         text        not null check (length(key) between 1 and 255),
  holder      uuid        not null,
  fingerprint bytea       not null check (length(fingerprint) = 32),
  results     integer     check (results > 0),
  lease_until timestamptz not null,
  expires_at  timestamptz not null,
  primary key (project, key)
);
create index batches_by_expiry on dispatcher.batches (expires_at);

-- The results of a batch, some hundred rows at a time, as they are answered.
create table dispatcher.batch_parts (
  project     text    not null,
  key         text    not null,
  first       integer not null check (first >= 0),
  fingerprint bytea   not null check (length(fingerprint) = 32),
  results     bytea   not null,
  primary key (project, key, first),
  foreign key (project, key) references dispatcher.batches on delete cascade
);

-- The key that signs links in messages: one for all processes, made here, so that
-- nobody has to think of one. Two random UUIDs are 244 bits.
create table dispatcher.link_key (
  only_one boolean not null primary key default true check (only_one),
  key      bytea   not null check (length(key) = 32)
);
insert into dispatcher.link_key (key) values (sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));

-- +goose Down
drop table dispatcher.link_key, dispatcher.batch_parts, dispatcher.batches;
delete from dispatcher.marks where canceled_at is null and acknowledged_at is null;
alter table dispatcher.marks drop column round, drop column retried_at, drop column expires_at,
  add constraint marks_check check (canceled_at is not null or acknowledged_at is not null);
