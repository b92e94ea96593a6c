-- The shop's own tables. Run as the owner, before headgate outbox init.
CREATE TABLE public.orders (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer text NOT NULL,
  cents    bigint NOT NULL
);
CREATE ROLE shop LOGIN;
GRANT SELECT, INSERT ON public.orders TO shop;

-- What billing writes. It could as well be another database, with an inbox and
-- an outbox of its own.
CREATE TABLE public.charges (
  order_id bigint NOT NULL,
  cents    bigint NOT NULL
);
CREATE ROLE billing LOGIN;
GRANT SELECT, INSERT ON public.charges TO billing;
