-- +goose Up

-- dispatcher.enqueue follows package notify rule by rule; both are tested with the
-- same bodies. Its parts begin with enqueue_. Here are those that know the shapes of
-- members and the syntax of texts, then what a body may say, and what is written.

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

-- +goose Down
drop function dispatcher.enqueue_refuse, dispatcher.enqueue_shape, dispatcher.enqueue_duration,
  dispatcher.enqueue_duration_text, dispatcher.enqueue_instant, dispatcher.enqueue_is_phone,
  dispatcher.enqueue_is_email, dispatcher.enqueue_no_space, dispatcher.enqueue_one_line, dispatcher.enqueue_is_url;
