package gateway

import (
	"compress/gzip"
	"errors"
	"io"
	"strings"

	"github.com/headgate/headgate"
)

// content returns the body with its content encoding removed, and its length
// if that is known (else -1). Gzip is the only encoding.
func (c *Call) content() (io.Reader, int64, error) {
	enc := strings.ToLower(strings.TrimSpace(strings.Join(c.R.Header.Values("Content-Encoding"), ",")))
	switch enc {
	case "", "identity":
		return c.body, c.R.ContentLength, nil
	case "gzip":
		zr, err := gzip.NewReader(c.body)
		if err != nil {
			return nil, 0, gzipError(err)
		}
		return &inflated{zr: zr, raw: c.body, limit: c.body.limit, ratio: int64(c.g.lim.Ratio)}, -1, nil
	}
	return nil, 0, &headgate.Error{
		Code: headgate.CodeUnsupportedMediaType, Detail: "The content encoding is not supported.",
		Fix: "Send the body as it is, or with Content-Encoding: gzip.",
	}
}

// inflated is a decompressed body: bounded in size, and in its ratio to what
// came over the connection, so that little input cannot cost much work.
type inflated struct {
	zr    *gzip.Reader
	raw   *guardedBody
	limit int64
	ratio int64
	read  int64
}

// freeInflation is what any body may decompress to, whatever its ratio.
const freeInflation = 1 << 20

// Read decompresses.
func (z *inflated) Read(p []byte) (int, error) {
	if room := z.limit - z.read + 1; int64(len(p)) > room {
		p = p[:room]
	}
	n, err := z.zr.Read(p)
	z.read += int64(n)
	switch {
	case z.read > z.limit:
		return n, tooLarge(z.limit)
	case z.read > freeInflation && z.read > z.ratio*z.raw.read:
		return n, headgate.NewError(headgate.CodeTooLarge, "The compressed body expands more than %d times.", z.ratio)
	case err == nil, errors.Is(err, io.EOF):
		return n, err
	}
	return n, gzipError(err)
}

// gzipError keeps the guard's own errors and names the rest.
func gzipError(err error) error {
	if e := headgate.AsError(err); e != nil {
		return e
	}
	return &headgate.Error{Code: headgate.CodeSyntax, Detail: "The body is not well-formed gzip.", Fix: "Compress the body again.", Err: err}
}
