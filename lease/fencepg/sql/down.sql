DROP FUNCTION IF EXISTS @public.fence(text, bigint, text), @public.fence(text),
  @public.fence_gate(text, bigint), @public.fence_seal(text, bigint, text), @public.fence_close_all();
DROP SCHEMA IF EXISTS @private CASCADE;
