package registry

import (
	"fmt"
	"strings"
)

// Fault is a refusal in the terms of registry clients: a code whose first
// three digits are an HTTP status. Failures of the store come as
// [*headgate.Error] instead.
type Fault struct {
	Code   int
	Detail string
}

// Error implements error.
func (f *Fault) Error() string { return f.Detail }

// The codes of a [Fault].
const (
	FaultSubjectNotFound       = 40401
	FaultVersionNotFound       = 40402
	FaultSchemaNotFound        = 40403
	FaultSubjectSoftDeleted    = 40404
	FaultSubjectNotSoftDeleted = 40405
	FaultVersionSoftDeleted    = 40406
	FaultVersionNotSoftDeleted = 40407
	FaultLevelNotConfigured    = 40408
	FaultModeNotConfigured     = 40409
	FaultIncompatible          = 409
	FaultInvalidSchema         = 42201
	FaultInvalidVersion        = 42202
	FaultInvalidLevel          = 42203
	FaultInvalidMode           = 42204
	FaultNotPermitted          = 42205
	FaultReferenceExists       = 42206
	FaultIDMismatch            = 42207
	FaultInvalidSubject        = 42208
	FaultTooLarge              = 42209
	FaultContextNotEmpty       = 42211
	FaultStore                 = 50001
	FaultTimeout               = 50002
)

func fault(code int, format string, args ...any) error {
	return &Fault{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// show bounds and cleans a name that a caller sent.
func show(s string) string {
	const most = 120
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == '\uFFFD' {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}
