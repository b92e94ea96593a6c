  own := pg_catalog.concat(pg_catalog.pg_current_xact_id(), E'\n');
  line := pg_catalog.concat(r, E'\t', e, E'\t', n, E'\n');
  IF noted IS NULL OR NOT pg_catalog.starts_with(noted, own) THEN
    noted := pg_catalog.concat(own, line);
  ELSIF pg_catalog.strpos(noted, pg_catalog.concat(E'\n', line)) OPERATOR(pg_catalog.=) 0 THEN
    noted := pg_catalog.concat(own, line, pg_catalog.substr(noted, pg_catalog.length(own) OPERATOR(pg_catalog.+) 1)); --others
  END IF;
  noted := pg_catalog.set_config('@setting', noted, true);
