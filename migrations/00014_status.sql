-- +goose Up

-- status is what became of notifications, as package notify derives it, for the
-- projects of the session's role.
create view dispatcher.status with (security_barrier) as
select n.project, n.id, n.reference,
  case
    when s.moving and s.called then 'sending'
    when s.moving or s.moving is null and m.canceled_at is null then 'queued'
    when m.canceled_at is not null then 'canceled'
    when n.mode = 'all' and s.ended is null then (array['sent', 'delivered', 'read'])[s.least_taken]
    when n.mode = 'all' and s.least_taken is not null then 'partially_failed'
    when n.mode = 'all' then (array['suppressed', 'canceled', 'expired', 'failed'])[s.ended]
    when s.best_taken is not null then (array['sent', 'delivered', 'read'])[s.best_taken]
    when s.ended = 1 then 'suppressed'
    when s.last_ended in (2, 3) then (array['suppressed', 'canceled', 'expired', 'failed'])[s.last_ended]
    else 'failed'
  end as status,
  coalesce(s.final, false) as final, n.created_at, n.send_at, n.expires_at, case when s.final then s.finished_at end as finished_at,
  m.acknowledged_at
from dispatcher.notifications n
left join dispatcher.marks m on m.notification_id = n.id
cross join lateral (
  select bool_and(final) as final, bool_or(moving) as moving, bool_or(called) as called, max(finished_at) as finished_at,
    max(taken) as best_taken, min(taken) as least_taken, max(ended) filter (where taken is null) as ended,
    (array_agg(case when taken is null then ended end order by step desc))[1] as last_ended
  from (
    select d.step, bool_and(d.final) as final, max(d.finished_at) as finished_at,
      bool_or(not d.final and d.status not in ('sent', 'delivered', 'read')) as moving,
      bool_or(d.status in ('sending', 'unknown', 'sent', 'failed', 'delivered', 'read')) as called,
      max(array_position(array['sent', 'delivered', 'read'], d.status)) as taken,
      max(array_position(array['suppressed', 'canceled', 'expired', 'failed'], d.status)) as ended
    from dispatcher.deliveries d
    where d.notification_id = n.id
    group by d.step
  ) step
) s
where has_table_privilege(session_user, 'dispatcher.notifications', 'insert')
  or n.project in (select p.project from dispatcher.role_projects p join pg_catalog.pg_roles r on r.rolname = p.role
    where pg_has_role(session_user, r.oid, 'usage'));

-- +goose Down
drop view dispatcher.status;
