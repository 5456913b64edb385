-- +goose Up

-- The newest event of each project that retention has deleted: a reader whose
-- position is before it would miss something. Events do not go in the order of
-- their ids, since a notification that ended late outlives younger ones, so the
-- oldest that is kept would not tell.
create table dispatcher.event_horizons (
  id      bigint not null,
  project text   not null primary key
) with (fillfactor = 50);

-- +goose Down
drop table dispatcher.event_horizons;
