package natsbroker

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/eventcodec"
)

// A frame is one broker message: the events of one partition that one write
// stores. All numbers are little-endian.
//
//	 0  magic        "HGFR"
//	 4  version      1 byte, 1
//	 5  zero         3 bytes
//	 8  base         uint64, offset of the first event
//	16  count        uint32, number of events, at least 1
//	20  body         uint32, bytes of the events region
//	24  time         int64, Unix nanoseconds; never falls within a partition
//	32  writer       uint64, drawn at random by the driver instance
//	40  serial       uint64, number of the frame within the writer
//	48  checksum     uint32, CRC-32C of every other byte of the frame
//	52  zero         4 bytes
//	56  ids          count × 16 bytes: see [digest]
//	    events       count records of package eventcodec
//
// The ids come first, so that the dedupe window is rebuilt at start without
// decoding an event.
const (
	frameMagic     = "HGFR"
	frameVersion   = 1
	frameHeaderLen = 56
	checksumAt     = 48
)

// errFrame is wrapped by every error about a frame's content.
var errFrame = errors.New("natsbroker: damaged frame")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// digest identifies an event by its source and id: the first 128 bits of a
// SHA-256. A client that could find two ids of one digest would have one of
// its own events taken for a duplicate; hitting a digest of somebody else
// takes 2^128 tries, so no stored event needs to be compared.
type digest [16]byte

// digestOf hashes source and id. The length between them makes ("a", "bc")
// and ("ab", "c") differ.
func digestOf(source, id string) digest {
	var space [256]byte
	b := binary.AppendUvarint(space[:0], uint64(len(source)))
	b = append(b, source...)
	b = append(b, id...)
	sum := sha256.Sum256(b)
	return digest(sum[:16])
}

// header is the fixed part of a frame.
type header struct {
	base   uint64
	count  uint32
	body   uint32
	time   time.Time
	writer uint64
	serial uint64
}

// end is the offset behind the frame's last event.
func (h header) end() uint64 { return h.base + uint64(h.count) }

// frame is a frame that was read and whose checksum holds.
type frame struct {
	header
	seq    uint64 // the message's sequence in its stream
	ids    []byte
	events []byte
}

// digest returns the id digest of event i.
func (f *frame) digest(i int) digest { return digest(f.ids[i*16:]) }

// appendFrame appends a whole frame to dst. ids and events are the two
// regions, already in their stored form.
func appendFrame(dst []byte, h header, ids []digest, events [][]byte) []byte {
	dst = slices.Grow(dst, frameHeaderLen+16*len(ids)+int(h.body))
	start := len(dst)
	dst = append(dst, frameMagic...)
	dst = append(dst, frameVersion, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, h.base)
	dst = binary.LittleEndian.AppendUint32(dst, h.count)
	dst = binary.LittleEndian.AppendUint32(dst, h.body)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.time.UnixNano()))
	dst = binary.LittleEndian.AppendUint64(dst, h.writer)
	dst = binary.LittleEndian.AppendUint64(dst, h.serial)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	for i := range ids {
		dst = append(dst, ids[i][:]...)
	}
	for _, e := range events {
		dst = append(dst, e...)
	}
	binary.LittleEndian.PutUint32(dst[start+checksumAt:], checksum(dst[start:]))
	return dst
}

// checksum covers everything but its own four bytes.
func checksum(frame []byte) uint32 {
	sum := crc32.Update(0, castagnoli, frame[:checksumAt])
	return crc32.Update(sum, castagnoli, frame[checksumAt+4:])
}

// parseHeader reads the fixed part without trusting it: the checksum is not
// looked at. It is what is left to say about a damaged frame.
func parseHeader(b []byte) (header, error) {
	if len(b) < frameHeaderLen || string(b[:4]) != frameMagic {
		return header{}, fmt.Errorf("%w: not a frame", errFrame)
	}
	if b[4] != frameVersion {
		return header{}, fmt.Errorf("%w: version %d, this build reads %d", errFrame, b[4], frameVersion)
	}
	le := binary.LittleEndian
	h := header{
		base:   le.Uint64(b[8:]),
		count:  le.Uint32(b[16:]),
		body:   le.Uint32(b[20:]),
		time:   time.Unix(0, int64(le.Uint64(b[24:]))),
		writer: le.Uint64(b[32:]),
		serial: le.Uint64(b[40:]),
	}
	want := uint64(frameHeaderLen) + uint64(h.count)*16 + uint64(h.body)
	if h.count == 0 || want != uint64(len(b)) || h.end() < h.base {
		return header{}, fmt.Errorf("%w: lengths do not add up", errFrame)
	}
	return h, nil
}

// parseFrame reads a frame and verifies its checksum. The result shares memory
// with b.
func parseFrame(b []byte) (frame, error) {
	h, err := parseHeader(b)
	if err != nil {
		return frame{}, err
	}
	if got := binary.LittleEndian.Uint32(b[checksumAt:]); got != checksum(b) {
		return frame{}, fmt.Errorf("%w: checksum does not match", errFrame)
	}
	split := frameHeaderLen + int(h.count)*16
	return frame{header: h, ids: b[frameHeaderLen:split], events: b[split:]}, nil
}

// slabEvents and slabBytes bound how many events share memory once they are
// handed out: one that is held for long pins no more than its slab, rather
// than its whole frame.
const (
	slabEvents = 16
	slabBytes  = 16 << 10
)

// decode calls yield with every event from the offset on, in slabs whose
// memory is independent of the frame. It stops when yield answers false. An
// event that cannot be decoded is an error, though the checksum held: it was
// written so.
func (f *frame) decode(from uint64, yield func(base uint64, slab []headgate.Event) bool) error {
	rest := f.events
	offset := f.base
	for ; offset < from && offset < f.end(); offset++ {
		size, err := eventcodec.Size(rest)
		if err != nil {
			return fmt.Errorf("%w: event %d: %w", errFrame, offset, err)
		}
		rest = rest[size:]
	}
	for offset < f.end() {
		n, size, err := slabOf(rest, int(f.end()-offset))
		if err != nil {
			return fmt.Errorf("%w: event %d: %w", errFrame, offset, err)
		}
		memory := append(make([]byte, 0, size), rest[:size]...)
		rest = rest[size:]
		slab := make([]headgate.Event, n)
		for i := range slab {
			if memory, err = eventcodec.DecodeInto(&slab[i], memory); err != nil {
				return fmt.Errorf("%w: event %d: %w", errFrame, offset+uint64(i), err)
			}
		}
		if !yield(offset, slab) {
			return nil
		}
		offset += uint64(n)
	}
	if len(rest) != 0 {
		return fmt.Errorf("%w: %d bytes behind the last event", errFrame, len(rest))
	}
	return nil
}

// slabOf returns how many of the next records make a slab, and their bytes.
func slabOf(rest []byte, limit int) (n, size int, err error) {
	for n < limit && n < slabEvents {
		one, err := eventcodec.Size(rest[size:])
		if err != nil {
			return 0, 0, err
		}
		if n > 0 && size+one > slabBytes {
			break
		}
		n, size = n+1, size+one
	}
	return n, size, nil
}
