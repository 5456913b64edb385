-- +goose Up

-- What a caller's own transaction may do: enqueue and cancel_for, and what they write.

-- enqueue_permit refuses a role that neither is bound to the project nor could
-- write the tables itself. It is the session's role that counts: what a function
-- or SET ROLE makes of it changes nothing.
-- +goose StatementBegin
create function dispatcher.enqueue_permit(project text) returns void language plpgsql stable as $$
begin
  if not has_table_privilege(session_user, 'dispatcher.notifications', 'insert') and not exists (
    select from dispatcher.role_projects p join pg_roles r on r.rolname = p.role
    where p.project = enqueue_permit.project and pg_has_role(session_user, r.oid, 'usage')) then
    raise exception using errcode = 'insufficient_privilege', message = 'the role may not act for this project',
      hint = 'An operator can bind it: dispatcher roles bind ROLE PROJECT';
  end if;
end $$;
-- +goose StatementEnd

-- enqueue_key claims an idempotency key, or returns the notification that has it.
-- A rival's open transaction is waited for, by this caller only: keys of enqueue
-- are apart from those of the API.
-- +goose StatementBegin
create function dispatcher.enqueue_key(in_project text, in_key text, mark bytea, id uuid, at timestamptz) returns uuid language plpgsql as $$
declare
  kept record;
begin
  insert into dispatcher.idempotency_keys as k (project, route, key, fingerprint, notification_id, answer, expires_at)
  values (in_project, 'enqueue', in_key, mark, id, '', at + interval '24 hours')
  on conflict (project, route, key) do update set
    fingerprint = excluded.fingerprint, notification_id = excluded.notification_id, expires_at = excluded.expires_at
  where k.expires_at <= at;
  if found then
    return null;
  end if;
  select k.fingerprint, k.notification_id into strict kept from dispatcher.idempotency_keys k
  where k.project = in_project and k.route = 'enqueue' and k.key = in_key;
  if kept.fingerprint <> mark then
    perform dispatcher.enqueue_refuse('/idempotency_key', 'conflict', 'was used before, with another body');
  end if;
  return kept.notification_id;
end $$;
-- +goose StatementEnd

-- enqueue_start writes the deliveries of the first step, or of all in mode all,
-- each with a wait until it is sent.
-- +goose StatementBegin
create function dispatcher.enqueue_start(n dispatcher.notifications, recipient jsonb, chain jsonb) returns void language plpgsql as $$
begin
  with target as (
    select s.step, (s.place - 1)::smallint as step_no, (a.place - 1)::smallint as target_no, count(*) over (partition by s.place) as targets,
      s.step ->> 'channel' as channel, a.address,
      least(n.expires_at, n.send_at + dispatcher.enqueue_duration(s.step ->> 'within') / 1000 * interval '1 microsecond') as ends_at
    from jsonb_array_elements(chain) with ordinality as s (step, place)
    cross join lateral jsonb_array_elements(case s.step ->> 'channel' when 'push' then recipient -> 'push'
      else jsonb_build_array(recipient -> (s.step ->> 'channel')) end) with ordinality as a (address, place)
    where n.mode = 'all' or s.place = 1
  ), delivery as (
    insert into dispatcher.deliveries (notification_id, step, target, targets, priority, started_at, ends_at, expires_at, address,
      project, channel, status, started_because, because, pinned, provider)
    select n.id, step_no, target_no, targets, n.priority, n.send_at, ends_at, n.expires_at,
      substr(sha256(convert_to(channel, 'UTF8') || '\x00' || convert_to(dispatcher.enqueue_address(address), 'UTF8')), 1, 16),
      n.project, channel, 'waiting', n.mode, 'scheduled', step ->> 'account',
      case channel when 'push' then address ->> 'provider'
        when 'slack' then case when address ? 'webhook_url' then 'slack-webhook' else 'slack' end end
    from target
  )
  insert into dispatcher.waits (notification_id, step, target, turn, priority, held, due, until, since, project, channel, reason)
  select n.id, step_no, target_no, 0, n.priority, false, n.send_at, n.send_at, n.created_at, n.project, channel, 'scheduled'
  from target;
end $$;
-- +goose StatementEnd

-- enqueue_at is enqueue at an instant.
-- +goose StatementBegin
create function dispatcher.enqueue_at(body jsonb, at timestamptz) returns uuid language plpgsql as $$
declare
  r       jsonb;
  n       dispatcher.notifications;
  word    text := coalesce(body ->> 'priority', '');
  key     text := body ->> 'idempotency_key';
  earlier uuid;
begin
  if body is null or jsonb_typeof(body) <> 'object' then
    perform dispatcher.enqueue_refuse('', 'type', 'must be an object');
  elsif pg_column_size(body) > 67108864 then
    perform dispatcher.enqueue_refuse('', 'length', 'must be at most 64 MiB');
  elsif jsonb_path_exists(body, 'strict $.**{32} ? (@.type() == "object" || @.type() == "array")') then
    perform dispatcher.enqueue_refuse('', 'too_deep', 'must nest arrays and objects at most 32 deep');
  end if;
  r := dispatcher.enqueue_shape(body, '{"project": "address", "idempotency_key": "address",
    "to": {"push": "devices", "sms": "address", "whatsapp": "address", "email": "email",
      "slack": {"channel": "text", "webhook_url": "text"}, "webhook": {"url": "text", "headers": {"{}": "text"}}},
    "chain": {"[]": {"channel": "text", "account": "text", "success": "text", "within": "text", "attempts": "int", "on_unknown": "text"}},
    "mode": "text", "priority": "text", "send_at": "text", "expires_at": "text", "reference": "text", "metadata": "value",
    "content": {"title": "text", "body": "text", "data": "value",
      "push": {"title": "text", "body": "text", "image": "text", "data": "value", "collapse_key": "text", "ttl": "ttl"},
      "sms": {"body": "text"},
      "whatsapp": {"body": "text", "template": {"name": "text", "language": "text", "variables": {"{}": "text"}}},
      "email": {"subject": "text", "text": "text", "html": "text", "from": "email", "reply_to": "email",
        "attachments": {"[]": {"filename": "text", "content_type": "text", "content": "base64"}},
        "unsubscribe_url": "text", "unsubscribe_mailto": "text"},
      "slack": {"text": "text", "blocks": "value", "thread": "text"}, "webhook": {"payload": "any"}}}', '');
  n.project := r ->> 'project';
  if coalesce(n.project, '') !~ '^[a-z0-9][a-z0-9_-]{0,62}$' then
    perform dispatcher.enqueue_refuse('/project', case when r ? 'project' then 'format' else 'required' end,
      'must be 1 to 63 lower case letters, digits, hyphens and underscores');
  elsif key !~ '^[ -~]{1,255}$' or btrim(key) = '' then
    perform dispatcher.enqueue_refuse('/idempotency_key', 'format', 'must be 1 to 255 visible ASCII characters');
  end if;
  perform dispatcher.enqueue_permit(n.project);
  n.priority := case word when 'critical' then 1 when 'high' then 2 when 'normal' then 3 when '' then 3 when 'low' then 4 end;
  if n.priority is null then
    perform dispatcher.enqueue_refuse('/priority', 'choice', 'must be one of critical, high, normal, low');
  end if;
  n.mode := coalesce(r ->> 'mode', 'first');
  if n.mode not in ('first', 'all') then
    perform dispatcher.enqueue_refuse('/mode', 'choice', 'must be first or all');
  end if;
  perform dispatcher.enqueue_to(r -> 'to');
  r := jsonb_set(r, '{chain}', dispatcher.enqueue_chain(r -> 'to', r -> 'chain', n.mode, word));
  perform dispatcher.enqueue_content(r -> 'content', r -> 'chain');
  n.created_at := at;
  n.send_at := greatest(at, dispatcher.enqueue_instant(r ->> 'send_at', '/send_at'));
  n.expires_at := dispatcher.enqueue_instant(r ->> 'expires_at', '/expires_at');
  if n.send_at > (at at time zone 'UTC' + interval '5 years') at time zone 'UTC' then
    perform dispatcher.enqueue_refuse('/send_at', 'range', 'must be at most 5 years ahead');
  elsif n.expires_at <= n.send_at then
    perform dispatcher.enqueue_refuse('/expires_at', 'range', 'must be later than send_at, and later than now');
  elsif n.expires_at > n.send_at + interval '720 hours' then
    perform dispatcher.enqueue_refuse('/expires_at', 'range', 'must be at most 30 days after send_at, or after now without it');
  end if;
  n.expires_at := coalesce(n.expires_at, n.send_at + interval '24 hours');
  n.reference := r ->> 'reference';
  if length(n.reference) > 255 then
    perform dispatcher.enqueue_refuse('/reference', 'length', 'must be at most 255 characters');
  elsif jsonb_typeof(r -> 'metadata') <> 'object' then
    perform dispatcher.enqueue_refuse('/metadata', 'type', 'must be an object');
  elsif not dispatcher.enqueue_compact(r -> 'metadata', 4096) then
    perform dispatcher.enqueue_refuse('/metadata', 'length', 'must be at most 4096 bytes of JSON');
  end if;
  -- A UUIDv7 (RFC 9562): 48 bits of milliseconds, the version, and a UUIDv4's rest.
  n.id := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    placing substr(int8send(floor(extract(epoch from at) * 1000)::bigint), 3) from 1 for 6), 52, 1), 53, 1), 'hex')::uuid;
  if key is not null then
    earlier := dispatcher.enqueue_key(n.project, key, sha256(convert_to((body - 'project' - 'idempotency_key')::text, 'UTF8')), n.id, at);
    if earlier is not null then
      return earlier;
    end if;
  end if;
  insert into dispatcher.notifications (id, project, priority, mode, chain, recipient, content, reference, metadata, created_at, send_at, expires_at)
  values (n.id, n.project, n.priority, n.mode, (r -> 'chain')::json, (r -> 'to')::json, (r -> 'content')::json, n.reference,
    (r -> 'metadata')::json, n.created_at, n.send_at, n.expires_at);
  perform dispatcher.enqueue_start(n, r -> 'to', r -> 'chain');
  insert into dispatcher.enqueued (notification_id) values (n.id);
  return n.id;
end $$;
-- +goose StatementEnd

-- enqueue accepts a notification in the caller's own transaction: the body of
-- POST /v1/notifications with "project", and "idempotency_key" if it may be
-- repeated. It takes no lock that anybody else waits for.
-- +goose StatementBegin
create function dispatcher.enqueue(body jsonb) returns uuid language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
begin
  return dispatcher.enqueue_at(body, clock_timestamp());
end $$;
-- +goose StatementEnd

-- cancel_for asks that every notification of a project with a reference that has
-- not ended is stopped, and returns how many there are. From the commit on no
-- call for them is claimed.
-- +goose StatementBegin
create function dispatcher.cancel_for(reference text, project text) returns integer language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
  asked integer;
begin
  perform dispatcher.enqueue_permit(project);
  insert into dispatcher.cancel_requests (notification_id, project, requested_at)
  select n.id, n.project, clock_timestamp() from dispatcher.notifications n
  where n.project = cancel_for.project and n.reference = cancel_for.reference
    and exists (select from dispatcher.deliveries d where d.notification_id = n.id and not d.final);
  get diagnostics asked = row_count;
  return asked;
end $$;
-- +goose StatementEnd

-- Nobody may call any of it who has not been bound to a project.
-- +goose StatementBegin
do $$
declare
  f regprocedure;
begin
  for f in select p.oid::regprocedure from pg_proc p
    where p.pronamespace = 'dispatcher'::regnamespace and (p.proname like 'enqueue%' or p.proname = 'cancel_for')
  loop
    execute format('revoke all on function %s from public', f);
  end loop;
end $$;
-- +goose StatementEnd

-- +goose Down
drop function dispatcher.enqueue_permit, dispatcher.enqueue_key, dispatcher.enqueue_start, dispatcher.enqueue_at,
  dispatcher.enqueue, dispatcher.cancel_for;
