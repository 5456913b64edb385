-- +goose Up

-- What was enqueued in a caller's own transaction and is not announced yet: its
-- accepted event is written, and its deliveries move, once a node has seen the
-- row, since a caller's transaction may stay open and must not write events.
create table dispatcher.enqueued (
  notification_id uuid not null primary key references dispatcher.notifications (id) on delete cascade
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Cancels that were asked for in a caller's own transaction: claims honour them
-- from its commit, a node applies them. There is no unique key and no foreign
-- key, so that nobody waits for a row of an open transaction.
create table dispatcher.cancel_requests (
  id              bigint      generated always as identity primary key,
  notification_id uuid        not null,
  project         text        not null,
  requested_at    timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index cancel_requests_by_notification on dispatcher.cancel_requests (notification_id);

-- Which roles act for which projects. A role stands for its members too.
create table dispatcher.role_projects (
  role    name not null,
  project text not null check (project ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
  primary key (role, project)
);

-- +goose Down
drop table dispatcher.role_projects, dispatcher.cancel_requests, dispatcher.enqueued;
