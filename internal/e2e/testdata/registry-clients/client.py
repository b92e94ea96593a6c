"""Confluent's Python client registers, serialises and reads back."""
import json
import os

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError


def connect():
    return SchemaRegistryClient(
        {"url": os.environ["REGISTRY_URL"], "basic.auth.user.info": "any:" + os.environ["REGISTRY_TOKEN"]}
    )


def refused(status, code, call, *args):
    try:
        call(*args)
    except SchemaRegistryError as e:
        assert (e.http_status_code, e.error_code) == (status, code), e
        return str(e)
    raise AssertionError("nothing was refused")


def main():
    writer, reader = connect(), connect()
    text = json.dumps({"type": "record", "name": "Note", "namespace": "py", "fields": [{"name": "about", "type": "string"}]})
    schema_id = writer.register_schema("py-notes-value", Schema(text, "AVRO"))
    assert schema_id > 0
    assert reader.lookup_schema("py-notes-value", Schema(text, "AVRO")).schema_id == schema_id
    assert reader.get_latest_version("py-notes-value").version == 1
    assert reader.get_schema(schema_id).schema_str == text

    context = SerializationContext("py-notes", MessageField.VALUE)
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    frame = AvroSerializer(writer, text, conf=settings)({"about": "x"}, context)
    assert frame[0] == 0 and int.from_bytes(frame[1:5], "big") == schema_id
    assert AvroDeserializer(reader)(frame, context) == {"about": "x"}

    # The GUID of the schema in a header, and no frame.
    context = SerializationContext("py-notes", MessageField.VALUE, headers=[])
    by_header = dict(settings, **{"schema.id.serializer": header_schema_id_serializer})
    datum = AvroSerializer(connect(), text, conf=by_header)({"about": "headers"}, context)
    assert datum == b"\x0eheaders" and [name for name, _ in context.headers] == ["__value_schema_id"], (datum, context.headers)
    assert AvroDeserializer(connect())(datum, context) == {"about": "headers"}

    shape = json.dumps({"title": "Note", "type": "object", "properties": {"about": {"type": "string"}},
                        "required": ["about"], "additionalProperties": False})
    json_id = writer.register_schema("py-json-value", Schema(shape, "JSON"))
    context = SerializationContext("py-json", MessageField.VALUE)
    serialize = JSONSerializer(shape, writer, conf=settings)
    frame = serialize({"about": "y"}, context)
    assert int.from_bytes(frame[1:5], "big") == json_id
    assert JSONDeserializer(shape, schema_registry_client=reader)(frame, context) == {"about": "y"}
    try:
        serialize({"about": 1}, context)
    except SerializationError:
        pass
    else:
        raise AssertionError("a value that breaks the schema was serialised")

    wrong = Schema(text.replace('"string"', '"boolean"'), "AVRO")
    assert "avro_resolution" in refused(409, 409, writer.register_schema, "py-notes-value", wrong)
    assert reader.test_compatibility("py-notes-value", wrong) is False
    refused(404, 40401, reader.get_latest_version, "py-nobody")
    box = json.dumps({"type": "record", "name": "Box", "namespace": "py", "fields": [{"name": "n", "type": "py.Note"}]})
    refused(422, 42201, writer.register_schema, "py-box-value", Schema(box, "AVRO"))
    writer.register_schema("py-box-value", Schema(box, "AVRO", [SchemaReference("py.Note", "py-notes-value", 1)]))
    refused(422, 42206, writer.delete_subject, "py-notes-value")
    writer.set_compatibility("py-notes-value", "FULL")
    assert connect().get_compatibility("py-notes-value") == "FULL"
    assert "py-box-value" in reader.get_subjects()
    assert writer.delete_subject("py-box-value") == [1]
    print("ok")


main()
