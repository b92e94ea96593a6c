package registry

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/store"
)

const (
	// keyGuesses is the row of a subject's guessed names.
	keyGuesses = "contract/guesses/"
	// keepGuessesEvery is how often new guesses are written, if there are any.
	keepGuessesEvery = time.Minute
	// keepGuessesLast is how long the last write may take when a node ends.
	keepGuessesLast = 5 * time.Second
	// guessesAtOnce bounds the rows of one transaction.
	guessesAtOnce = 128
)

// LoadGuesses reads the names that senders guessed wrong as far as they were
// kept. A row that cannot be read is left out: it is a count and no state.
func (r *Registry) LoadGuesses(ctx context.Context, g *contract.Guesses) error {
	return r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Settings.List(ctx, keyGuesses)
		for key, row := range rows {
			var list []headgate.Guess
			if json.Unmarshal(row, &list) == nil {
				g.Known(strings.TrimPrefix(key, keyGuesses), list)
			}
		}
		return err
	})
}

// KeepGuesses writes what is counted to the store, one row for each subject,
// every minute that has something new and once more when ctx ends. What cannot
// be written is written later; log hears of it. It returns nil. Counting never
// waits for it.
//
// Rows are added to, so that nodes of one store lose none of each other's
// counts; each shows its own and what was kept when it started.
func (r *Registry) KeepGuesses(ctx context.Context, g *contract.Guesses, log *slog.Logger) error {
	tick := time.NewTicker(keepGuessesEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.keepGuesses(ctx, g, log)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepGuessesLast)
			defer cancel()
			r.keepGuesses(last, g, log)
			return nil
		}
	}
}

func (r *Registry) keepGuesses(ctx context.Context, g *contract.Guesses, log *slog.Logger) {
	taken := g.Take()
	subjects := make([]string, 0, len(taken))
	for s := range taken {
		subjects = append(subjects, s)
	}
	slices.Sort(subjects)
	for batch := range slices.Chunk(subjects, guessesAtOnce) {
		if err := r.addGuesses(ctx, batch, taken); err != nil {
			g.Return(taken)
			log.WarnContext(ctx, "guessed names could not be written; they will be later", "error", err)
			return
		}
		for _, s := range batch {
			delete(taken, s)
		}
	}
}

// addGuesses adds the counts of some subjects to their rows.
func (r *Registry) addGuesses(ctx context.Context, subjects []string, counts map[string][]headgate.Guess) error {
	return r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		for _, s := range subjects {
			var kept []headgate.Guess
			row, err := tx.Settings.Get(ctx, keyGuesses+s)
			if err != nil && headgate.CodeOf(err) != headgate.CodeNotFound {
				return err
			}
			if json.Unmarshal(row, &kept) != nil {
				kept = nil // never written, or by what this version does not know
			}
			if row, err = json.Marshal(contract.MergeGuesses(kept, counts[s])); err != nil {
				return headgate.NewError(headgate.CodeInternal, "%v", err)
			}
			if err := tx.Settings.Put(ctx, keyGuesses+s, row); err != nil {
				return err
			}
		}
		return nil
	})
}
