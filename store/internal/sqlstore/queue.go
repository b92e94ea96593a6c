package sqlstore

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store"
)

// Bounds of a group: how many functions share a commit, and how long the
// first may wait for the last.
const (
	maxGroup    = 256
	maxGroupAge = 20 * time.Millisecond
	queueLength = 1024
)

// Function is what Update and View run.
type Function = func(context.Context, *store.Tx) error

// The states of a job: whoever changes it from jobWaiting owns it.
const (
	jobWaiting = iota
	jobStarted
	jobAbandoned
)

// Job is one function that waits for the writer.
type Job struct {
	Ctx context.Context // of the call that waits, for as long as it waits
	Fn  Function
	Err error // what the call returns; the writer's until Answer

	state atomic.Int32
	done  chan struct{}
}

// Start says whether the job is the writer's: its caller has not gone away.
// Once it started, the caller waits for its Answer.
func (j *Job) Start() bool { return j.claim(jobStarted) }

// Answer ends the job, and with it the call.
func (j *Job) Answer() { close(j.done) }

func (j *Job) claim(state int32) bool { return j.state.CompareAndSwap(jobWaiting, state) }

// Queue holds the functions that wait for the one writer of a store, and
// counts those that read. It is made by NewQueue and safe for concurrent use.
type Queue struct {
	jobs chan *Job

	mu     sync.RWMutex // held for reading by calls that begin
	closed bool
	reads  sync.WaitGroup
}

// NewQueue returns an empty queue.
func NewQueue() *Queue { return &Queue{jobs: make(chan *Job, queueLength)} }

// Update has the writer run fn and returns its answer. A caller that goes away
// takes back a function that has not started.
func (q *Queue) Update(ctx context.Context, fn Function) error {
	j := &Job{Ctx: ctx, Fn: fn, done: make(chan struct{})}
	if err := q.enqueue(j); err != nil {
		return err
	}
	select {
	case <-j.done:
		return j.Err
	case <-ctx.Done():
		if j.claim(jobAbandoned) {
			return Abandoned(ctx)
		}
		<-j.done
		return j.Err
	}
}

func (q *Queue) enqueue(j *Job) error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.closed {
		return closed()
	}
	if j.Ctx.Err() != nil {
		return Abandoned(j.Ctx)
	}
	select {
	case q.jobs <- j:
		return nil
	case <-j.Ctx.Done():
		return Abandoned(j.Ctx)
	}
}

// Read runs what reads, unless the queue is closed. WaitReads waits for it.
func (q *Queue) Read(read func() error) error {
	q.mu.RLock()
	if q.closed {
		q.mu.RUnlock()
		return closed()
	}
	q.reads.Add(1)
	q.mu.RUnlock()
	defer q.reads.Done()
	return read()
}

// Close refuses later calls and ends the writer's loop once the jobs that wait
// are done.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	close(q.jobs)
}

// WaitReads waits for what reads. It is for after Close.
func (q *Queue) WaitReads() { q.reads.Wait() }

// Jobs is what the writer takes the first job of each group from.
func (q *Queue) Jobs() <-chan *Job { return q.jobs }

// Len returns how many jobs wait.
func (q *Queue) Len() int { return len(q.jobs) }

// Another returns the next job of a group, started, or nil when the group is
// to commit. When fewer are in it than there were in the last, the crowd, it
// yields once: callers that were just answered are about to come back.
func (q *Queue) Another(members, crowd int, began time.Time) *Job {
	if members >= maxGroup || time.Since(began) > maxGroupAge {
		return nil
	}
	for yielded := false; ; {
		select {
		case j, open := <-q.jobs:
			if !open {
				return nil
			}
			if j.Start() {
				return j
			}
		default:
			if yielded || members >= crowd {
				return nil
			}
			yielded = true
			runtime.Gosched()
		}
	}
}
