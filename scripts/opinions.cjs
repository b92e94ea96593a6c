// Compares our verdicts (files in the form of the JSON Schema test suite) with
// those of Ajv and of Blaze. Called by scripts/opinions.
'use strict';
const fs = require('fs');
const path = require('path');
const { spawnSync } = require('child_process');

// Schemas that a validator cannot be asked about, and why.
const excused = {
  ajv: {
    'draft 4': 'Ajv has no draft 4',
    'patterns': 'flags in the middle of a pattern are no ECMAScript',
    'numbers': 'multipleOf is computed with doubles',
    'multiples': 'multipleOf is computed with doubles',
    'big bounds': 'bounds beyond a double',
    'strings of branches': 'ipv4 in ajv-formats accepts leading zeros',
    'unevaluated with contains': 'contains evaluates every item in Ajv, not those that match',
  },
  blaze: {
    'patterns': 'flags in the middle of a pattern are no ECMAScript',
    'multiples': 'multipleOf is computed with doubles',
    'big bounds': 'bounds beyond a double',
  },
};
// Cases in which a validator is known to be wrong, and why.
const wrong = {
  ajv: [[/"[a-z][a-z0-9+.-]*:\/\/[^\/?#"]*:[0-9]*[^0-9\/?#":@\[\]][^\/?#"@]*["\/?#]/i, 'a port that is no number passes as a uri']],
  blaze: [],
};
const formats = /^format /; // each validator has its own; the suites check ours

const [dir, blaze] = process.argv.slice(2);
const drafts = {
  'http://json-schema.org/draft-06/schema': 'ajv',
  'http://json-schema.org/draft-07/schema': 'ajv',
  'https://json-schema.org/draft/2019-09/schema': 'ajv/dist/2019',
  'https://json-schema.org/draft/2020-12/schema': 'ajv/dist/2020',
};

function byAjv(group) {
  const module = drafts[group.schema.$schema.replace(/#$/, '')];
  if (!module) return null;
  const Ajv = require(module).default;
  const ajv = new Ajv({ strict: false, allErrors: false, logger: false, unicodeRegExp: true });
  if (group.schema.$schema.includes('draft-06')) ajv.addMetaSchema(require('ajv/dist/refs/json-schema-draft-06.json'));
  require('ajv-formats').default(ajv);
  const validate = ajv.compile(group.schema);
  return (data) => validate(data);
}

const count = { ajv: 0, blaze: 0 };
const differ = { ajv: [], blaze: [] };
const skipped = { ajv: {}, blaze: {} };
const known = {};

function disagree(name, group, t, ...more) {
  const data = JSON.stringify(t.data);
  const found = !t.valid && wrong[name].find(([re]) => re.test(data)); // we refuse, and they do not
  if (found) known[`${name}: ${found[1]}`] = (known[`${name}: ${found[1]}`] || 0) + 1;
  else differ[name].push([group.description, t.valid, data.slice(0, 300), ...more]);
}

function ask(name, group, fn) {
  const reason = formats.test(group.description) ? 'formats' : excused[name][group.description];
  if (reason) { skipped[name][group.description] = reason; return; }
  try {
    fn();
  } catch (err) {
    skipped[name][group.description] = String(err.message || err).slice(0, 120);
  }
}

for (const file of fs.readdirSync(dir).filter((f) => f.endsWith(".json")).sort()) {
  if (/\.(schema|test)\.json$/.test(file)) continue;
  const full = path.join(dir, file);
  const [group] = JSON.parse(fs.readFileSync(full, 'utf8'));
  if (group.schema === true) continue;
  ask('ajv', group, () => {
    const check = byAjv(group);
    if (!check) throw new Error('no such draft');
    for (const t of group.tests) {
      count.ajv++;
      if (check(t.data) !== t.valid) disagree('ajv', group, t);
    }
  });
  ask('blaze', group, () => {
    const schema = full.replace(/\.json$/, '.schema.json');
    const tests = full.replace(/\.json$/, '.test.json');
    fs.writeFileSync(schema, JSON.stringify(group.schema));
    fs.writeFileSync(tests, JSON.stringify({ target: path.basename(schema), tests: group.tests }));
    const out = spawnSync(blaze, ['test', '--format-assertion', '--json', tests], { encoding: 'utf8', maxBuffer: 1 << 28 });
    let report;
    try { report = JSON.parse(out.stdout); } catch { throw new Error(`blaze ends with ${out.signal || out.status}: ${out.stderr.slice(0, 200)}`); }
    const results = report.results.tests;
    if (results.length !== group.tests.length) throw new Error(`blaze ran ${results.length} of ${group.tests.length} tests`);
    results.forEach((r, i) => {
      count.blaze++;
      const t = group.tests[i];
      if (r.status !== 'passed') disagree('blaze', group, t, r.status);
    });
  });
}

for (const name of ['ajv', 'blaze']) {
  console.log(`${name}: ${count[name]} cases, ${differ[name].length} differences, ${Object.keys(skipped[name]).length} schemas not asked`);
  const reasons = {};
  for (const [schema, why] of Object.entries(skipped[name])) (reasons[why] = reasons[why] || []).push(schema);
  for (const [why, list] of Object.entries(reasons)) console.log(`  not asked (${why}): ${list.slice(0, 6).join(', ')}${list.length > 6 ? ` and ${list.length - 6} more` : ''}`);
  for (const d of differ[name].slice(0, 40)) console.log('  differs:', ...d);
}
for (const [why, n] of Object.entries(known)) console.log(`known to be wrong, ${why}: ${n} cases`);
process.exitCode = differ.ajv.length + differ.blaze.length > 0 ? 1 : 0;
