// Prints the CPU nanoseconds of one verdict by Ajv from the raw text: JSON.parse
// and the compiled check.
'use strict';
const fs = require('fs');
const [schemaFile, payloadFile, turns] = process.argv.slice(2);
const schema = JSON.parse(fs.readFileSync(schemaFile, 'utf8'));
const dialect = String(schema.$schema || '');
const Ajv = require(dialect.includes('draft-07') ? 'ajv' : 'ajv/dist/2020').default;
const ajv = new Ajv({ strict: false, logger: false });
require('ajv-formats').default(ajv);
const check = ajv.compile(schema);
const payload = fs.readFileSync(payloadFile, 'utf8');
const run = (n) => {
  for (let i = 0; i < n; i++) if (!check(JSON.parse(payload))) throw new Error('refused: ' + JSON.stringify(check.errors));
};
run(Math.max(2000, turns / 10));
const begin = process.cpuUsage();
run(Number(turns));
const used = process.cpuUsage(begin);
console.log(((used.user + used.system) * 1000) / turns);
