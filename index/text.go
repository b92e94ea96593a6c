package index

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate"
)

// glyphs are what the lines of a tree are drawn with.
type glyphs struct{ branch, last, bar, gap, cut, more string }

var (
	boxGlyphs   = glyphs{"├─ ", "└─ ", "│  ", "   ", "✂ ", "…"}
	asciiGlyphs = glyphs{"|- ", "`- ", "|  ", "   ", "x ", "..."}
)

// minWidth is the narrowest that a tree is drawn.
const minWidth = 40

// WriteText draws the tree as plain lines: one for each event with type, id,
// publisher and the hops left, and one where a causal limit cut it. Lines
// of the tree are clipped to width columns (0: not at all); ids are escaped. With ascii it uses
// no other characters than ASCII. The error is w's.
func (t *Tree) WriteText(w io.Writer, width int, ascii bool) error {
	d := drawing{w: bufio.NewWriter(w), width: width, glyphs: boxGlyphs, ascii: ascii}
	if width > 0 {
		d.width = max(width, minWidth)
	}
	if ascii {
		d.glyphs = asciiGlyphs
	}
	d.tree(t.Root)
	d.width = 0 // the sums are never clipped
	d.line("", t.summary())
	for _, o := range t.Beyond {
		d.line("", fmt.Sprintf("%d more refusals of %s by %s (%s), all roots taken together, exceeded the quota of records",
			o.Count, d.label(o.Type), d.label(o.Principal), o.Reason))
	}
	return d.w.Flush()
}

// summary is one line about the whole.
func (t *Tree) summary() string {
	s := fmt.Sprintf("%d events, depth %d, %d refused by causal limits", t.Events, t.Depth, t.Cuts)
	if t.More {
		s += " (and more)"
	}
	if t.Gas.Known {
		s += fmt.Sprintf(", gas left %d of %d", t.Gas.Left(), t.Gas.Total)
	}
	if t.Shown < t.Events {
		s += fmt.Sprintf("; the first %d are shown", t.Shown)
	}
	if t.Lag > 0 {
		s += fmt.Sprintf("; the index is %d events behind", t.Lag)
	}
	return s
}

type drawing struct {
	w     *bufio.Writer
	width int
	ascii bool
	glyphs
}

// branch is a node that waits to be drawn.
type branch struct {
	node   *Node
	prefix string // of its own line
	below  string // of the lines below it
}

// tree draws a node and all below it, without recursion: depth is the
// publishers' choice.
func (d *drawing) tree(root *Node) {
	stack := []branch{{node: root}}
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		d.line(b.prefix, d.event(b.node))
		for i, c := range b.node.Cuts {
			glyph := d.glyphs.branch
			if i == len(b.node.Cuts)-1 && len(b.node.Children) == 0 {
				glyph = d.last
			}
			d.line(b.below+glyph, d.cutOff(&c))
		}
		for i, child := range slices.Backward(b.node.Children) {
			next := branch{child, b.below + d.glyphs.branch, b.below + d.bar}
			if i == len(b.node.Children)-1 {
				next.prefix, next.below = b.below+d.last, b.below+d.gap
			}
			stack = append(stack, next)
		}
	}
}

func (d *drawing) event(n *Node) string {
	if n.Missing {
		return d.label(n.ID) + " (the root is not in the index any more)"
	}
	s := d.label(n.Type) + " " + d.label(n.ID)
	if n.Principal != "" {
		s += " by " + d.label(n.Principal)
	}
	s += " ttl=" + strconv.Itoa(n.TTL)
	if causes := headgate.SplitCauses(n.Causes); len(causes) > 1 {
		var also []string
		for _, c := range causes[1:] {
			also = append(also, d.label(c))
		}
		s += " also caused by " + strings.Join(also, ", ")
	}
	return s
}

func (d *drawing) cutOff(c *Cut) string {
	s := d.cut + c.Reason + ": " + strconv.Itoa(c.Count) + " refused, " + d.label(c.Type)
	if c.Principal != "" {
		s += " by " + d.label(c.Principal)
	}
	if c.QID != "" {
		s += " (" + d.label(c.QID) + ")"
	}
	return s
}

// line writes one line within the width. A deep branch loses the left part of
// its prefix before it loses its words.
func (d *drawing) line(prefix, text string) {
	if d.width > 0 {
		if room := d.width / 2; utf8.RuneCountInString(prefix) > room {
			runes := []rune(prefix)
			prefix = d.more + string(runes[len(runes)-room+len([]rune(d.more)):])
		}
		text = d.clip(text, d.width-utf8.RuneCountInString(prefix))
	}
	// The error stays in the writer until Flush.
	_, _ = d.w.WriteString(prefix)
	_, _ = d.w.WriteString(text)
	_ = d.w.WriteByte('\n')
}

func (d *drawing) clip(s string, room int) string {
	if utf8.RuneCountInString(s) <= room {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(0, room-utf8.RuneCountInString(d.more))]) + d.more
}

func (d *drawing) label(s string) string {
	if d.ascii {
		return labelWith(s, func(r rune) bool { return r > ' ' && r < utf8.RuneSelf })
	}
	return label(s)
}

// label is a name for people: as it is when every character shows itself,
// clipped and escaped otherwise.
func label(s string) string {
	return labelWith(s, func(r rune) bool {
		return unicode.IsPrint(r) && r != ' ' && r != utf8.RuneError && !unicode.Is(unicode.Mn, r)
	})
}

func labelWith(s string, shows func(rune) bool) string {
	const limit = 128
	clipped := s
	if len(s) > limit {
		clipped = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	if clipped == "" || strings.IndexFunc(clipped, func(r rune) bool { return !shows(r) || r == '"' || r == '\\' }) >= 0 {
		return strconv.QuoteToASCII(clipped)
	}
	return clipped
}
