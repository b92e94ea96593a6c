// The client of the KafkaJS project registers, encodes and decodes.
'use strict'
const assert = require('node:assert')
const { SchemaRegistry, SchemaType, COMPATIBILITY } = require('@kafkajs/confluent-schema-registry')

const { REGISTRY_URL: url, REGISTRY_TOKEN: token } = process.env
const connect = () => new SchemaRegistry({ host: url, auth: { username: 'any', password: token }, retry: { retries: 0 } })

async function main () {
  const writer = connect(); const reader = connect()
  const schema = JSON.stringify({ type: 'record', name: 'Note', namespace: 'kjs', fields: [{ name: 'about', type: 'string' }] })
  const { id } = await writer.register({ type: SchemaType.AVRO, schema }, { subject: 'kjs-notes-value', compatibility: COMPATIBILITY.BACKWARD })
  assert.ok(id > 0)
  const again = await writer.register({ type: SchemaType.AVRO, schema }, { subject: 'kjs-notes-value', compatibility: COMPATIBILITY.BACKWARD })
  assert.strictEqual(again.id, id)
  const frame = await writer.encode(id, { about: 'x' })
  assert.strictEqual(frame.readInt32BE(1), id)
  assert.deepStrictEqual({ ...await reader.decode(frame) }, { about: 'x' })
  assert.strictEqual(await reader.getLatestSchemaId('kjs-notes-value'), id)
  assert.strictEqual(await reader.getRegistryId('kjs-notes-value', 1), id)

  const json = JSON.stringify({ type: 'object', properties: { about: { type: 'string' } }, required: ['about'], additionalProperties: false })
  const j = await writer.register({ type: SchemaType.JSON, schema: json }, { subject: 'kjs-json-value' })
  const jframe = await writer.encode(j.id, { about: 'y' })
  assert.deepStrictEqual(await reader.decode(jframe), { about: 'y' })
  await assert.rejects(writer.encode(j.id, { about: 1 }))

  const wrong = JSON.stringify({ type: 'record', name: 'Note', namespace: 'kjs', fields: [{ name: 'about', type: 'boolean' }] })
  await assert.rejects(writer.register({ type: SchemaType.AVRO, schema: wrong }, { subject: 'kjs-notes-value', compatibility: COMPATIBILITY.BACKWARD }))
  await assert.rejects(reader.getLatestSchemaId('kjs-nobody'), (e) => e.status === 404)
  console.log('ok')
}

main().then(() => process.exit(0), (e) => { console.error(e); process.exit(1) })
