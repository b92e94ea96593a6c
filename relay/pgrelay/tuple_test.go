package pgrelay

import (
	"testing"
	"time"
)

// What the server sends is not trusted with this process's memory.
func FuzzTuple(f *testing.F) {
	f.Add([]byte("\x00\x03t\x00\x00\x00\x01xnb\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x01"))
	f.Add([]byte("\x00\x01b\xff\xff\xff\xff"))
	f.Add([]byte("\xff\xffu"))
	f.Fuzz(func(t *testing.T, tuple []byte) {
		for _, rel := range []*relation{
			{fields: []field{{colKey, oidText}, {-1, 7}, {colSeq, oidInt8}, {colData, oidBytea}, {colAttributes, oidJSONB}, {colCreated, oidTimestamptz}}},
			{fields: []field{{colID, oidUUID}, {colSeq, oidInt4}, {colData, oidText}, {colCreated, oidText}}},
			{},
		} {
			var s streamed
			if s.take(rel, tuple) == nil {
				if row := rowOf(&s, time.Unix(1, 0)); row.Event == nil && row.Err == nil {
					t.Errorf("%q is neither event nor refused", tuple)
				}
			}
		}
	})
}
