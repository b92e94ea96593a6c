-- The shop's own table. Run as the owner, before or after headgate outbox init.
CREATE TABLE public.orders (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer text NOT NULL,
  cents    bigint NOT NULL
);
CREATE ROLE shop LOGIN;
GRANT SELECT, INSERT ON public.orders TO shop;
