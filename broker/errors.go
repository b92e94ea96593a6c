package broker

import "errors"

// ErrClosed is wrapped by errors of a closed driver or subscription.
var ErrClosed = errors.New("broker: closed")
