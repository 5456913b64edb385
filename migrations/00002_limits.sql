-- +goose Up

-- Rates that all nodes share, by the generic cell rate algorithm: tat is the
-- theoretical arrival time, the instant at which the key is full again. The
-- other columns are the last ask and what it was granted; they are here because
-- an upsert can return only what it writes. A missing row is a full key, so that
-- losing this table in a crash costs one burst a key and nothing waits for a disk.
-- Every take is a HOT update: half of each page is left for them.
create unlogged table dispatcher.rate_limits (
  tat       timestamptz      not null,
  period_us double precision not null check (period_us > 0),
  burst     integer          not null check (burst > 0),
  wanted    integer          not null,
  least     integer          not null,
  granted   integer          not null,
  key       text collate "C" not null primary key check (length(key) <= 255)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- +goose Down
drop table dispatcher.rate_limits;
