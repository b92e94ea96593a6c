PERFORM FROM @table l
    WHERE l.epoch = e --epoch
      AND l.resource = name
      AND translate(rtrim(encode(l.nonce, 'base64'), '='), '+/', '-_') = n --nonce
      AND NOT l.closing --gate
      AND @alive --expiry
    FOR KEY SHARE; --lock
