package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgblock"
	"github.com/headgate/headgate/store"
)

var _ store.Evictor = (*Store)(nil)

const (
	// evictWait bounds one call, and how long its waiter stands in line.
	evictWait = 3 * time.Second
	// evictLook is how often it looks who holds the row.
	evictLook = 10 * time.Millisecond
	// evictions bounds the calls that run at once; each has two connections.
	evictions = 2
)

// Evict implements store.Evictor. One session waits for the row, in a
// transaction that does nothing else; a second one looks for whom. The store's
// own writers, which hold the writers' lock, are waited for and never ended.
func (s *Store) Evict(ctx context.Context, resource string, epoch int64, end bool) (met []headgate.BlockingSession, err error) {
	ctx, cancel := context.WithTimeout(ctx, evictWait+s.cfg.ConnectTimeout)
	defer cancel()
	err = s.queue.Read(func() error {
		select {
		case s.evicting <- struct{}{}:
		case <-ctx.Done():
			return storeError(ctx.Err())
		}
		defer func() { <-s.evicting }()
		met, err = s.evict(ctx, resource, epoch, end)
		return storeError(err)
	})
	return met, err
}

func (s *Store) evict(ctx context.Context, resource string, epoch int64, end bool) ([]headgate.BlockingSession, error) {
	waiter, err := s.connect(ctx, writerSession)
	if err != nil {
		return nil, err
	}
	defer waiter.close()
	watcher, err := s.connect(ctx, readerSession)
	if err != nil {
		return nil, err
	}
	defer watcher.close()
	pid, err := pgblock.PID(ctx, waiter.pg)
	if err != nil {
		return nil, err
	}
	freed := make(chan error, 1)
	go func() {
		// Given the row, it lets go of it at once.
		_, err := waiter.pg.Exec(ctx, fmt.Sprintf(`BEGIN; SET LOCAL lock_timeout = %d; SELECT FROM "%s".leases WHERE resource = decode('%x', 'hex') AND epoch = %d FOR UPDATE; ROLLBACK`,
			evictWait.Milliseconds(), s.cfg.Schema, resource, epoch)).ReadAll()
		freed <- err
	}()
	e := eviction{pg: watcher.pg, waiter: pid, spare: pgblock.Lock{Class: lockClass, Number: lockNumber(s.cfg.Schema)}, end: end}
	err = e.run(ctx, freed)
	met := make([]headgate.BlockingSession, len(e.met))
	for i := range e.met {
		met[i] = e.met[i].BlockingSession
	}
	return met, err
}

// eviction is one call.
type eviction struct {
	pg     *pgconn.PgConn
	waiter int
	spare  pgblock.Lock
	end    bool
	met    []pgblock.Session
}

// run looks until the waiter is freed, and returns when its statement ended.
func (e *eviction) run(ctx context.Context, freed <-chan error) error {
	tick := time.NewTicker(evictLook)
	defer tick.Stop()
	for {
		select {
		case err := <-freed:
			var refused *pgconn.PgError
			if errors.As(err, &refused) && refused.Code == "55P03" {
				return nil // there is still somebody
			}
			return err
		case <-tick.C:
		}
		done, err := e.look(ctx)
		if !done && err == nil {
			continue
		}
		// The server would let the waiter stand in line, and others behind it.
		if gone := pgblock.Cancel(ctx, e.pg, e.waiter); gone != nil {
			err = errors.Join(err, gone)
		}
		<-freed // bounded by ctx and the waiter's lock_timeout
		return err
	}
}

// look looks once, and reports whether there is nothing more to do.
func (e *eviction) look(ctx context.Context) (done bool, err error) {
	found, err := pgblock.Look(ctx, e.pg, e.waiter, e.spare)
	if err != nil {
		return false, err
	}
	left := 0
	for i := range found {
		at := e.known(&found[i])
		if e.end && !at.Ended && at.Lacks == "" {
			if err := at.End(ctx, e.pg); err != nil {
				return false, err
			}
		}
		if !at.Ended {
			left++
		}
	}
	return left > 0 && (!e.end || left == len(found)), nil
}

// known returns the session among those that were met.
func (e *eviction) known(s *pgblock.Session) *pgblock.Session {
	for i := range e.met {
		if e.met[i].Same(s) {
			return &e.met[i]
		}
	}
	e.met = append(e.met, *s)
	return &e.met[len(e.met)-1]
}
