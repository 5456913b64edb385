-- +goose Up

-- How much a key may ask for, by class of route, where it is not what is
-- configured: tokens a second, and how many at once.
alter table dispatcher.api_keys
  add column write_per_second double precision check (write_per_second between 1.0 / 3600 and 1000000),
  add column write_burst      integer          check (write_burst between 1 and 1000000),
  add column read_per_second  double precision check (read_per_second between 1.0 / 3600 and 1000000),
  add column read_burst       integer          check (read_burst between 1 and 1000000),
  add column admin_per_second double precision check (admin_per_second between 1.0 / 3600 and 1000000),
  add column admin_burst      integer          check (admin_burst between 1 and 1000000),
  add constraint api_keys_limits_whole check (
    (write_per_second is null) = (write_burst is null)
    and (read_per_second is null) = (read_burst is null)
    and (admin_per_second is null) = (admin_burst is null));

-- What was refused to a key because its limit was spent, by the minute. Nothing
-- ties a row to its key, since what is counted here must not lock that.
create table dispatcher.rate_refusals (
  key_id  uuid        not null,
  class   text        not null check (class in ('write', 'read', 'admin')),
  minute  timestamptz not null,
  last_at timestamptz not null,
  count   bigint      not null check (count > 0),
  primary key (key_id, minute, class)
) with (fillfactor = 50);
create index rate_refusals_by_minute on dispatcher.rate_refusals (minute);

-- +goose Down
drop table dispatcher.rate_refusals;
alter table dispatcher.api_keys
  drop constraint api_keys_limits_whole,
  drop column write_per_second, drop column write_burst,
  drop column read_per_second, drop column read_burst,
  drop column admin_per_second, drop column admin_burst;
