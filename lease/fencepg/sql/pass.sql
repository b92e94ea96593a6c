PERFORM FROM @table l
    WHERE l.epoch OPERATOR(pg_catalog.=) e --epoch
      AND l.resource OPERATOR(pg_catalog.=) pg_catalog.convert_to(r, 'UTF8')
      AND pg_catalog.translate(pg_catalog.encode(l.nonce, 'base64'), '+/=', '-_') COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) n --nonce
      AND NOT l.closing --gate
      AND @alive --expiry
    FOR KEY SHARE; --lock
