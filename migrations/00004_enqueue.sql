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

-- Everything below that begins with enqueue_ is a part of dispatcher.enqueue and
-- follows package notify rule by rule; both are tested with the same bodies.

-- +goose StatementBegin
create function dispatcher.enqueue_refuse(pointer text, code text, detail text) returns void language plpgsql as $$
begin
  raise exception using errcode = 'invalid_parameter_value',
    message = 'invalid notification: ' || coalesce(nullif(pointer, '') || ' ', 'the body ') || detail, detail = pointer, constraint = code;
end $$;
-- +goose StatementEnd

-- enqueue_shape checks members and types, and returns the value as it is stored:
-- without what is null or an empty text. Shapes are names, objects of members,
-- {"[]": shape} for arrays and {"{}": "text"} for objects of texts.
-- +goose StatementBegin
create function dispatcher.enqueue_shape(value jsonb, shape jsonb, pointer text) returns jsonb language plpgsql as $$
declare
  wanted text := shape #>> '{}';
  kind   text := jsonb_typeof(value);
  made   jsonb;
  result jsonb;
  name   text;
  item   jsonb;
begin
  if value is null or shape = '"any"' then
    return value;
  elsif kind = 'null' then
    return null;
  end if;
  case
  when shape = '"value"' then
    return value;
  when shape in ('"text"', '"address"') then
    if kind <> 'string' then
      perform dispatcher.enqueue_refuse(pointer, 'type', 'must be a string');
    end if;
    return case when value <> '""' or shape = '"address"' then value end;
  when shape = '"int"' then
    if kind <> 'number' or value::text !~ '^-?[0-9]{1,18}$' then
      perform dispatcher.enqueue_refuse(pointer, 'type', 'must be a whole number');
    end if;
    return value;
  when shape = '"ttl"' then
    if kind <> 'string' or dispatcher.enqueue_duration(value #>> '{}') is null then
      perform dispatcher.enqueue_refuse(pointer, 'format', 'must be a duration such as "90s" or "2m30s"');
    end if;
    return to_jsonb(dispatcher.enqueue_duration_text(nullif(dispatcher.enqueue_duration(value #>> '{}'), 0)));
  when shape = '"base64"' then
    wanted := value #>> '{}';
    if kind <> 'string' or length(wanted) % 4 <> 0 or rtrim(wanted, '=') ~ '[^A-Za-z0-9+/]'
      or length(wanted) - length(rtrim(wanted, '=')) > 2 then
      perform dispatcher.enqueue_refuse(pointer, 'format', 'must be base64 (RFC 4648, section 4) in a string');
    end if;
    return value;
  when shape = '"email"' then
    if kind = 'string' then
      return jsonb_build_object('address', value);
    elsif kind <> 'object' then
      perform dispatcher.enqueue_refuse(pointer, 'type', 'must be an address, or an object with address and name');
    end if;
    return '{"address": ""}' || dispatcher.enqueue_shape(value, '{"address": "text", "name": "text"}', pointer);
  when shape = '"devices"' then
    shape := '{"provider": "text", "token": "text", "endpoint": "text", "keys": {"p256dh": "text", "auth": "text"}}';
    if kind = 'object' then
      return jsonb_build_array(dispatcher.enqueue_shape(value, shape, pointer));
    elsif kind <> 'array' then
      perform dispatcher.enqueue_refuse(pointer, 'type', 'must be a device or an array of devices');
    end if;
    return dispatcher.enqueue_shape(value, jsonb_build_object('[]', shape), pointer);
  when shape ? '[]' then
    if kind <> 'array' then
      perform dispatcher.enqueue_refuse(pointer, 'type', 'must be an array');
    end if;
    result := '[]';
    for item in select e from jsonb_array_elements(value) e loop
      made := dispatcher.enqueue_shape(coalesce(nullif(item, 'null'), '{}'), shape -> '[]', pointer || '/' || jsonb_array_length(result));
      result := result || jsonb_build_array(made);
    end loop;
    return result;
  else
    if kind <> 'object' then
      perform dispatcher.enqueue_refuse(pointer, 'type', 'must be an object');
    end if;
    result := '{}';
    for name, item in select * from jsonb_each(value) loop
      wanted := pointer || case when name ~ '^[A-Za-z0-9._-]{1,40}$' and length(translate(name, translate(name, '0123456789', ''), '')) < 7
        then '/' || name else '' end; -- a member's name may be an address
      if shape ? '{}' then
        made := case jsonb_typeof(item) when 'null' then '""' else dispatcher.enqueue_shape(item, '"address"', wanted) end;
      elsif shape ? name then
        made := dispatcher.enqueue_shape(item, shape -> name, wanted);
      else
        perform dispatcher.enqueue_refuse(wanted, 'unknown_member', 'is not a member of this object');
      end if;
      if made is not null then
        result := result || jsonb_build_object(name, made);
      end if;
    end loop;
    return result;
  end case;
end $$;
-- +goose StatementEnd

-- enqueue_duration reads a duration of Go in nanoseconds; null if it is none.
-- +goose StatementBegin
create function dispatcher.enqueue_duration(t text) returns bigint language sql immutable as $$
  select case when t ~ '^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h)){1,4}$' then (
    select case when sum(n) < 9.2e18 then sum(n)::bigint end from (
      select trunc(m[1]::numeric * case m[3] when 'ms' then 1e6 when 's' then 1e9 when 'm' then 60e9 else 3600e9 end) as n
      from regexp_matches(t, '([0-9]+(\.[0-9]+)?)(ms|s|m|h)', 'g') as m) p) end
$$;
-- +goose StatementEnd

-- enqueue_duration_text writes a duration of at least a second as Go does.
-- +goose StatementBegin
create function dispatcher.enqueue_duration_text(ns bigint) returns text language sql immutable as $$
  select case when ns >= 3600000000000 then ns / 3600000000000 || 'h' else '' end
    || case when ns >= 60000000000 then ns / 60000000000 % 60 || 'm' else '' end
    || trim_scale((ns % 60000000000)::numeric / 1000000000) || 's'
$$;
-- +goose StatementEnd

-- enqueue_instant reads an RFC 3339 date-time; null for none.
-- +goose StatementBegin
create function dispatcher.enqueue_instant(t text, pointer text) returns timestamptz language plpgsql as $$
declare
  part text[] := regexp_match(t, '^(([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01]))T(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?)[0-9]{0,3}'
    || '(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$');
begin
  if t is null then
    return null;
  elsif part is null or part[2] = '0000' or t ~ '\.[0-9]{10}'
    or part[4]::int > extract(day from make_date(part[2]::int, part[3]::int, 1) + interval '1 month - 1 day') then
    perform dispatcher.enqueue_refuse(pointer, 'format', 'must be an RFC 3339 date-time with a time zone, such as 2026-12-01T08:00:00Z');
  end if;
  return ((part[1] || ' ' || part[5])::timestamp
    - case when part[8] = 'Z' then interval '0' else (left(part[8], 1) || substr(part[8], 2) || ':00')::interval end) at time zone 'UTC';
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function dispatcher.enqueue_is_phone(t text) returns boolean language sql immutable as $$
  select t ~ '^\+[1-9][0-9]{6,14}$'
$$;
-- +goose StatementEnd

-- Beyond ASCII, letters cannot be told from other characters here; only white
-- space, controls and general punctuation are refused.
-- +goose StatementBegin
create function dispatcher.enqueue_is_email(t text) returns boolean language sql immutable as $$
  select octet_length(t) <= 254 and octet_length(split_part(t, '@', 1)) <= 64
    and t ~ '^[A-Za-z0-9!#$%&''*+/=?^_`{|}~\u0080-\U0010ffff-]+(\.[A-Za-z0-9!#$%&''*+/=?^_`{|}~\u0080-\U0010ffff-]+)*@[A-Za-z0-9_\u0080-\U0010ffff-]+(\.[A-Za-z0-9_\u0080-\U0010ffff-]+)*$'
    and t !~ '[\u0080-\u00a1\u00a7\u00ab\u00ad\u00b6\u00b7\u00bb\u00bf\u1680\u2000-\u2043\u2045-\u2051\u2053-\u206f\u3000-\u3003\u3008-\u3011\ufeff\uff01\uff0c\uff0e\uff1a\uff1b\uff1f\uff20\uff61\ufff9-\ufffb]'
    and t !~ '@-' and t !~ '-$'
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function dispatcher.enqueue_no_space(t text) returns boolean language sql immutable as $$
  select t !~ '[\u0001-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]'
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function dispatcher.enqueue_one_line(t text, most integer) returns boolean language sql immutable as $$
  select length(t) <= most and t !~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]'
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function dispatcher.enqueue_is_url(t text) returns boolean language sql immutable as $$
  select octet_length(t) <= 2048 and dispatcher.enqueue_no_space(t)
    and t ~ ('^[Hh][Tt][Tt][Pp][Ss]?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&''()*+,;=<>"\u0080-\U0010ffff-]+)(:[0-9]*)?'
      || '(/([^?#%]|%[0-9A-Fa-f]{2})*)?(\?[^#]*)?(#([^%]|%[0-9A-Fa-f]{2})*)?$')
    and coalesce((regexp_match(t, '^[^/]*//(?:\[[^]]*\]|[^/?#:]*):([0-9]+)'))[1]::numeric between 1 and 65535, true)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function dispatcher.enqueue_email(e jsonb, pointer text) returns void language plpgsql as $$
begin
  if e is null then
    return;
  elsif not dispatcher.enqueue_is_email(e ->> 'address') then
    perform dispatcher.enqueue_refuse(pointer || case when e ? 'name' then '/address' else '' end, 'format',
      'must be an email address of at most 254 bytes, such as ana@example.com');
  elsif not dispatcher.enqueue_one_line(e ->> 'name', 200) then
    perform dispatcher.enqueue_refuse(pointer || '/name', 'format', 'must be at most 200 characters, without control characters');
  end if;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function dispatcher.enqueue_device(d jsonb, pointer text) returns void language plpgsql as $$
begin
  if d ->> 'provider' in ('fcm', 'apns') then
    if coalesce(d ->> 'token', '') !~ '^[!-~]+$' or length(d ->> 'token') > 4096 then
      perform dispatcher.enqueue_refuse(pointer || '/token', 'format', 'must be 1 to 4096 visible ASCII characters');
    elsif d ? 'endpoint' then
      perform dispatcher.enqueue_refuse(pointer || '/endpoint', 'conflict', 'is for webpush only');
    elsif d ? 'keys' then
      perform dispatcher.enqueue_refuse(pointer || '/keys', 'conflict', 'is for webpush only');
    end if;
  elsif d ->> 'provider' = 'webpush' then
    if d ? 'token' then
      perform dispatcher.enqueue_refuse(pointer || '/token', 'conflict', 'is for fcm and apns only');
    elsif not dispatcher.enqueue_is_url(coalesce(d ->> 'endpoint', '')) then
      perform dispatcher.enqueue_refuse(pointer || '/endpoint', 'format', 'must be an absolute http or https URL of at most 2048 bytes, without user name or password');
    elsif not d ? 'keys' then
      perform dispatcher.enqueue_refuse(pointer || '/keys', 'required', 'must have p256dh and auth');
    elsif coalesce(d #>> '{keys,p256dh}', '') !~ '^[A-Za-z0-9_-]{87}$' then
      perform dispatcher.enqueue_refuse(pointer || '/keys/p256dh', 'format', 'must be 65 bytes in base64url without padding');
    elsif coalesce(d #>> '{keys,auth}', '') !~ '^[A-Za-z0-9_-]{22}$' then
      perform dispatcher.enqueue_refuse(pointer || '/keys/auth', 'format', 'must be 16 bytes in base64url without padding');
    end if;
  else
    perform dispatcher.enqueue_refuse(pointer || '/provider', 'choice', 'must be one of fcm, apns, webpush');
  end if;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function dispatcher.enqueue_to(t jsonb) returns void language plpgsql as $$
declare
  url_detail constant text := 'must be an absolute http or https URL of at most 2048 bytes, without user name or password';
  pointer text;
  item    jsonb;
  i       integer := 0;
  name    text;
  seen    text[] := '{}';
begin
  if t is null then
    perform dispatcher.enqueue_refuse('/to', 'required', 'must say where the recipient can be reached');
  elsif t = '{}' then
    perform dispatcher.enqueue_refuse('/to', 'required', 'must have at least one of push, sms, whatsapp, email, slack, webhook');
  end if;
  if t ? 'push' then
    if jsonb_array_length(t -> 'push') not between 1 and 100 then
      perform dispatcher.enqueue_refuse('/to/push', 'length', 'must be 1 to 100 devices');
    end if;
    for item in select e from jsonb_array_elements(t -> 'push') e loop
      perform dispatcher.enqueue_device(item, '/to/push/' || i);
      name := dispatcher.enqueue_address(item);
      if name = any (seen) then
        perform dispatcher.enqueue_refuse('/to/push/' || i, 'duplicate', 'must not be the same device as an earlier one');
      end if;
      seen := seen || name;
      i := i + 1;
    end loop;
  end if;
  if not dispatcher.enqueue_is_phone(t ->> 'sms') then
    perform dispatcher.enqueue_refuse('/to/sms', 'format', 'must be a phone number in E.164 form: a plus sign and 7 to 15 digits, the first not 0');
  elsif not dispatcher.enqueue_is_phone(t ->> 'whatsapp') then
    perform dispatcher.enqueue_refuse('/to/whatsapp', 'format', 'must be a phone number in E.164 form: a plus sign and 7 to 15 digits, the first not 0');
  end if;
  perform dispatcher.enqueue_email(t -> 'email', '/to/email');
  if t ? 'slack' then
    item := t -> 'slack';
    if item ? 'channel' = item ? 'webhook_url' then
      perform dispatcher.enqueue_refuse('/to/slack', 'conflict', 'must have either channel or webhook_url');
    elsif not (length(item ->> 'channel') <= 80 and dispatcher.enqueue_no_space(item ->> 'channel')) then
      perform dispatcher.enqueue_refuse('/to/slack/channel', 'format', 'must be 1 to 80 visible characters');
    elsif not dispatcher.enqueue_is_url(item ->> 'webhook_url') then
      perform dispatcher.enqueue_refuse('/to/slack/webhook_url', 'format', url_detail);
    end if;
  end if;
  if t ? 'webhook' then
    if not dispatcher.enqueue_is_url(coalesce(t #>> '{webhook,url}', '')) then
      perform dispatcher.enqueue_refuse('/to/webhook/url', 'format', url_detail);
    elsif (select count(*) from jsonb_object_keys(t #> '{webhook,headers}')) > 20 then
      perform dispatcher.enqueue_refuse('/to/webhook/headers', 'length', 'must be at most 20 headers');
    end if;
    seen := '{}';
    for name, item in select h.key, h.value from jsonb_each(t #> '{webhook,headers}') h order by h.key collate "C" loop
      pointer := '/to/webhook/headers' || case when name ~ '^[A-Za-z0-9._-]{1,40}$' and name !~ '([0-9].*){7}' then '/' || name else '' end;
      if name !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,100}$' then
        perform dispatcher.enqueue_refuse(pointer, 'format', 'a header''s name must be a token of RFC 9110, at most 100 bytes');
      elsif octet_length(item #>> '{}') > 1024 or item #>> '{}' ~ '[\u0001-\u0008\u000a-\u001f\u007f]' then
        perform dispatcher.enqueue_refuse(pointer, 'format', 'a header''s value must be at most 1024 bytes, without control characters');
      elsif lower(name) = any (seen) then
        perform dispatcher.enqueue_refuse(pointer, 'duplicate', 'names of headers must differ in more than case');
      end if;
      seen := seen || lower(name);
    end loop;
  end if;
end $$;
-- +goose StatementEnd

-- enqueue_address is the canonical text of an address, which its hash is made of.
-- Email addresses are compared without regard to the case of ASCII letters.
-- +goose StatementBegin
create function dispatcher.enqueue_address(t jsonb) returns text language sql immutable as $$
  select case when jsonb_typeof(t) = 'string' then t #>> '{}'
    when t ? 'provider' then concat(t ->> 'provider', ':', coalesce(t ->> 'endpoint', t ->> 'token'))
    else coalesce(lower(t ->> 'address' collate "C"), t ->> 'webhook_url', t ->> 'channel', t ->> 'url') end
$$;
-- +goose StatementEnd

-- enqueue_chain checks the steps and fills in their defaults.
-- +goose StatementBegin
create function dispatcher.enqueue_chain(t jsonb, chain jsonb, mode text, priority text) returns jsonb language plpgsql as $$
declare
  named   constant boolean := chain is not null;
  until   constant text := case priority when 'critical' then '30s' else '2m0s' end;
  pointer text;
  result  jsonb := '[]';
  step    jsonb;
  within  bigint;
  last    integer;
begin
  if not named then
    chain := coalesce((select jsonb_agg(jsonb_build_object('channel', c) order by place)
      from unnest(array['push', 'sms', 'whatsapp', 'email']) with ordinality as d (c, place) where t ? c), '[]');
    if chain = '[]' then
      perform dispatcher.enqueue_refuse('/chain', 'required', 'must name the steps; without it only push, sms, whatsapp and email are used');
    end if;
  elsif jsonb_array_length(chain) not between 1 and 10 then
    perform dispatcher.enqueue_refuse('/chain', 'length', 'must have 1 to 10 steps');
  end if;
  last := jsonb_array_length(chain) - 1;
  for i in 0 .. last loop
    step := chain -> i;
    pointer := '/chain/' || i;
    if coalesce(step ->> 'channel', '') not in ('push', 'sms', 'whatsapp', 'email', 'slack', 'webhook') then
      perform dispatcher.enqueue_refuse(pointer || '/channel', 'choice', 'must be one of push, sms, whatsapp, email, slack, webhook');
    elsif step ->> 'success' not in ('accepted', 'delivered', 'read', 'acknowledged') then
      perform dispatcher.enqueue_refuse(pointer || '/success', 'choice', 'must be one of accepted, delivered, read, acknowledged');
    elsif step ->> 'on_unknown' not in ('reconcile', 'resend', 'fallback', 'assume_sent') then
      perform dispatcher.enqueue_refuse(pointer || '/on_unknown', 'choice', 'must be one of reconcile, resend, fallback, assume_sent');
    elsif (step ->> 'attempts')::numeric not between 1 and 20 then
      perform dispatcher.enqueue_refuse(pointer || '/attempts', 'range', 'must be 1 to 20');
    end if;
    within := dispatcher.enqueue_duration(step ->> 'within');
    if within is null and step ? 'within' then
      perform dispatcher.enqueue_refuse(pointer || '/within', 'format', 'must be a duration such as "90s" or "2m30s"');
    elsif within not between 1000000000 and 604800000000000 then
      perform dispatcher.enqueue_refuse(pointer || '/within', 'range', 'must be 1s to 168h');
    end if;
    result := result || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
      'channel', step -> 'channel', 'account', step -> 'account', 'success', coalesce(step ->> 'success', 'accepted'),
      'within', coalesce(dispatcher.enqueue_duration_text(within), case when mode = 'first' and i < last then until end),
      'attempts', coalesce((step ->> 'attempts')::integer, 4), 'on_unknown', step -> 'on_unknown')));
    if not t ? (step ->> 'channel') then
      perform dispatcher.enqueue_refuse('/to/' || (step ->> 'channel'), 'required', 'must be there, because the chain has a step for it');
    end if;
  end loop;
  return result;
end $$;
-- +goose StatementEnd

-- enqueue_compact is how many bytes a value is without the spaces that jsonb has
-- after colons and commas.
-- +goose StatementBegin
create function dispatcher.enqueue_compact(value jsonb, most integer) returns boolean language sql immutable as $$
  select case when octet_length(value::text) <= most then true
    else octet_length(regexp_replace(value::text, '("([^"\\]|\\.)*")|([:,]) ', '\1\3', 'g')) <= most end
$$;
-- +goose StatementEnd

-- enqueue_said reports whether one of the texts is more than white space.
-- +goose StatementBegin
create function dispatcher.enqueue_said(variadic texts text[]) returns boolean language sql immutable as $$
  select exists (select from unnest(texts) t where btrim(t, E' \t\r\n') <> '')
$$;
-- +goose StatementEnd

-- enqueue_content checks the content and that it says something on every channel.
-- +goose StatementBegin
create function dispatcher.enqueue_content(c jsonb, chain jsonb) returns void language plpgsql as $$
declare
  url_detail   constant text := 'must be an absolute http or https URL of at most 2048 bytes, without user name or password';
  email_detail constant text := 'must be an email address of at most 254 bytes, such as ana@example.com';
  ttl     bigint := dispatcher.enqueue_duration(c #>> '{push,ttl}');
  email   jsonb := c -> 'email';
  pointer text;
  item    jsonb;
  i       integer := 0;
  told    boolean;
  plain   boolean := dispatcher.enqueue_said(c ->> 'title', c ->> 'body');
  channel text;
begin
  if c is null then
    perform dispatcher.enqueue_refuse('/content', 'required', 'must say what the recipient is told');
  elsif jsonb_typeof(c -> 'data') <> 'object' then
    perform dispatcher.enqueue_refuse('/content/data', 'type', 'must be an object');
  elsif jsonb_typeof(c #> '{push,data}') <> 'object' then
    perform dispatcher.enqueue_refuse('/content/push/data', 'type', 'must be an object');
  elsif not dispatcher.enqueue_is_url(c #>> '{push,image}') then
    perform dispatcher.enqueue_refuse('/content/push/image', 'format', url_detail);
  elsif ttl not between 1000000000 and 2419200000000000 then
    perform dispatcher.enqueue_refuse('/content/push/ttl', 'range', 'must be 1s to 672h');
  elsif not dispatcher.enqueue_one_line(email ->> 'subject', 998) then
    perform dispatcher.enqueue_refuse('/content/email/subject', 'format', 'must be at most 998 characters, without control characters');
  end if;
  perform dispatcher.enqueue_email(email -> 'from', '/content/email/from');
  perform dispatcher.enqueue_email(email -> 'reply_to', '/content/email/reply_to');
  if not dispatcher.enqueue_is_url(email ->> 'unsubscribe_url') then
    perform dispatcher.enqueue_refuse('/content/email/unsubscribe_url', 'format', url_detail);
  elsif not dispatcher.enqueue_is_email(email ->> 'unsubscribe_mailto') then
    perform dispatcher.enqueue_refuse('/content/email/unsubscribe_mailto', 'format', email_detail);
  elsif jsonb_array_length(email -> 'attachments') > 20 then
    perform dispatcher.enqueue_refuse('/content/email/attachments', 'length', 'must be at most 20 attachments');
  end if;
  for item in select e from jsonb_array_elements(email -> 'attachments') e loop
    pointer := '/content/email/attachments/' || i;
    if not item ? 'filename' or not dispatcher.enqueue_one_line(item ->> 'filename', 255) or item ->> 'filename' ~ '[/\\]' then
      perform dispatcher.enqueue_refuse(pointer || '/filename', 'format', 'must be 1 to 255 characters, without slashes and control characters');
    elsif length(item ->> 'content_type') > 127 or item ->> 'content_type' !~
      '^[A-Za-z0-9!#$%&''*+.^_`|~-]+/[A-Za-z0-9!#$%&''*+.^_`|~-]+([ \t]*;[ \t]*[A-Za-z0-9!#$%&''*+.^_`|~-]+=([A-Za-z0-9!#$%&''*+.^_`|~-]+|"([^"\\\u0001-\u001f\u007f-\uffff]|\\[ -~])*"))*$' then
      perform dispatcher.enqueue_refuse(pointer || '/content_type', 'format', 'must be a media type such as application/pdf');
    elsif coalesce(item ->> 'content', '') = '' then
      perform dispatcher.enqueue_refuse(pointer || '/content', 'required', 'must not be empty');
    end if;
    i := i + 1;
  end loop;
  if c #> '{whatsapp,template}' is not null and not dispatcher.enqueue_said(c #>> '{whatsapp,template,name}') then
    perform dispatcher.enqueue_refuse('/content/whatsapp/template/name', 'required', 'must name an approved template');
  elsif jsonb_typeof(c #> '{slack,blocks}') <> 'array' then
    perform dispatcher.enqueue_refuse('/content/slack/blocks', 'type', 'must be an array of Block Kit blocks');
  elsif c #>> '{slack,thread}' !~ '^[0-9]+\.[0-9]+$' or length(c #>> '{slack,thread}') > 32 then
    perform dispatcher.enqueue_refuse('/content/slack/thread', 'format', 'must be the ts of a message, such as 1700000000.000100');
  end if;
  for channel in select distinct s ->> 'channel' from jsonb_array_elements(chain) s order by 1 loop
    case channel
    when 'push' then
      told := dispatcher.enqueue_said(coalesce(c #>> '{push,title}', c ->> 'title'), coalesce(c #>> '{push,body}', c ->> 'body'))
        or coalesce(c #> '{push,data}', c -> 'data', '{}') <> '{}';
      pointer := '/content/push push needs a title, a body or data, here or in content';
    when 'sms' then
      told := coalesce(dispatcher.enqueue_said(c #>> '{sms,body}') or c #> '{sms,body}' is null and plain, false);
      pointer := '/content/sms/body sms needs a body, or a title or body in content';
    when 'whatsapp' then
      told := c #> '{whatsapp,template}' is not null or dispatcher.enqueue_said(c #>> '{whatsapp,body}') or c #> '{whatsapp,body}' is null and plain;
      pointer := '/content/whatsapp/body whatsapp needs a body or a template, or a title or body in content';
    when 'email' then
      if not dispatcher.enqueue_said(coalesce(email ->> 'subject', c ->> 'title')) then
        perform dispatcher.enqueue_refuse('/content/email/subject', 'required', 'email needs a subject, or a title in content');
      elsif c ->> 'title' ~ E'[\r\n]' and not coalesce(email ? 'subject', false) then
        perform dispatcher.enqueue_refuse('/content/title', 'format', 'must be one line where it serves as the subject of an email');
      end if;
      told := dispatcher.enqueue_said(coalesce(email ->> 'text', c ->> 'body'), email ->> 'html');
      pointer := '/content/email/text email needs text or html, or a body in content';
    when 'slack' then
      told := coalesce(c #> '{slack,blocks}', '[]') <> '[]' or dispatcher.enqueue_said(c #>> '{slack,text}') or c #> '{slack,text}' is null and plain;
      pointer := '/content/slack/text slack needs text or blocks, or a title or body in content';
    when 'webhook' then
      told := c #> '{webhook,payload}' is not null or plain or coalesce(c -> 'data', '{}') <> '{}';
      pointer := '/content/webhook/payload webhook needs a payload, or a title, body or data in content';
    end case;
    if not told then
      perform dispatcher.enqueue_refuse(split_part(pointer, ' ', 1), 'required', substr(pointer, strpos(pointer, ' ') + 1));
    end if;
  end loop;
  if not dispatcher.enqueue_compact(c #- '{email,attachments}', 262144) then
    perform dispatcher.enqueue_refuse('/content', 'length', 'must be at most 256 KiB of JSON, attachments aside');
  end if;
end $$;
-- +goose StatementEnd

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
drop view dispatcher.status;
drop table dispatcher.role_projects, dispatcher.cancel_requests, dispatcher.enqueued;
-- +goose StatementBegin
do $$
declare
  f regprocedure;
begin
  for f in select p.oid::regprocedure from pg_proc p
    where p.pronamespace = 'dispatcher'::regnamespace and (p.proname like 'enqueue%' or p.proname = 'cancel_for')
  loop
    execute format('drop function %s', f);
  end loop;
end $$;
-- +goose StatementEnd
