// Confluent's own client registers, serialises, and reads back with a client
// of its own that knows nothing but the registry.
'use strict'
const assert = require('node:assert')
const sr = require('@confluentinc/schemaregistry')

const { REGISTRY_URL: url, REGISTRY_TOKEN: token } = process.env
const connect = () => new sr.SchemaRegistryClient({
  baseURLs: [url],
  basicAuthCredentials: { credentialsSource: 'USER_INFO', userInfo: 'any:' + token },
})

async function main () {
  const writer = connect(); const reader = connect()
  const avro = {
    schemaType: 'AVRO',
    schema: JSON.stringify({ type: 'record', name: 'Note', fields: [{ name: 'about', type: 'string' }, { name: 'n', type: 'int' }] }),
  }
  const id = await writer.register('js-notes-value', avro)
  assert.ok(id > 0)
  assert.strictEqual(await writer.getId('js-notes-value', avro), id)

  const ser = new sr.AvroSerializer(writer, sr.SerdeType.VALUE, { useLatestVersion: true })
  const de = new sr.AvroDeserializer(reader, sr.SerdeType.VALUE, {})
  const note = { about: 'ticket 7', n: 3 }
  const frame = await ser.serialize('js-notes', note)
  assert.strictEqual(frame[0], 0)
  assert.strictEqual(frame.readInt32BE(1), id)
  assert.deepStrictEqual({ ...await de.deserialize('js-notes', frame) }, note)

  const json = { schemaType: 'JSON', schema: JSON.stringify({ type: 'object', properties: { about: { type: 'string' } }, required: ['about'], additionalProperties: false }) }
  const jid = await writer.register('js-json-value', json)
  const jser = new sr.JsonSerializer(writer, sr.SerdeType.VALUE, { useLatestVersion: true, validate: true })
  const jde = new sr.JsonDeserializer(reader, sr.SerdeType.VALUE, { validate: true })
  const jframe = await jser.serialize('js-json', { about: 'x' })
  assert.strictEqual(jframe.readInt32BE(1), jid)
  assert.deepStrictEqual(await jde.deserialize('js-json', jframe), { about: 'x' })
  await assert.rejects(jser.serialize('js-json', { about: 1 }))

  const wrong = { ...avro, schema: avro.schema.replace('"int"', '"boolean"') }
  await assert.rejects(writer.register('js-notes-value', wrong), (e) => e.status === 409 && /avro_resolution/.test(e.message))
  assert.strictEqual(await reader.testSubjectCompatibility('js-notes-value', wrong), false)
  await assert.rejects(reader.getLatestSchemaMetadata('js-nobody'), (e) => e.status === 404 && e.errorCode === 40401)
  assert.deepStrictEqual(await reader.getAllVersions('js-notes-value'), [1])
  await writer.updateCompatibility('js-notes-value', sr.Compatibility.FULL_TRANSITIVE)
  assert.strictEqual(await connect().getCompatibility('js-notes-value'), sr.Compatibility.FULL_TRANSITIVE)
  assert.deepStrictEqual(await writer.deleteSubject('js-json-value'), [1])
  assert.deepStrictEqual(await writer.deleteSubject('js-json-value', true), [1])
  console.log('ok')
}

main().then(() => process.exit(0), (e) => { console.error(e); process.exit(1) })
