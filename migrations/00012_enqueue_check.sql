-- +goose Up

-- What a body that has the right shape may say: addresses, chain and content.

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

-- +goose Down
drop function dispatcher.enqueue_email, dispatcher.enqueue_device, dispatcher.enqueue_to, dispatcher.enqueue_address,
  dispatcher.enqueue_chain, dispatcher.enqueue_compact, dispatcher.enqueue_said, dispatcher.enqueue_content;
