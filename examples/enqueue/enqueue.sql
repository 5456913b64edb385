-- Stores an order and has its confirmation sent, in one transaction:
--
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -v order=order-1 -f enqueue.sql
\set QUIET on
\pset tuples_only on
\pset format unaligned

begin;

insert into orders (id) values (:'order');

select dispatcher.enqueue(jsonb_build_object(
  'project', 'shop',
  'idempotency_key', 'confirmation-' || :'order',
  'reference', :'order',
  'to', jsonb_build_object('email', jsonb_build_object('address', 'ana@example.com', 'name', 'Ana')),
  'content', jsonb_build_object('title', 'Your order', 'body', 'We have your order ' || :'order' || '.')));

commit;
