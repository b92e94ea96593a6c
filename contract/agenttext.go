package contract

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate"
)

// maxAgentLines bounds the text for models.
const maxAgentLines = 12

// AgentText writes a verdict for a language model: at most 12 lines, one
// violation each, starting with the verb of what to do. Nothing of the
// payload is in it but clipped, quoted samples. A nil or valid verdict gives
// the empty string.
func AgentText(v *headgate.Verdict) string {
	if v == nil || v.Valid || len(v.Violations) == 0 {
		return ""
	}
	list := v.Violations
	rest := v.Truncated
	if len(list)+min(rest, 1) > maxAgentLines {
		rest += len(list) - (maxAgentLines - 1)
		list = list[:maxAgentLines-1]
	}
	var sb strings.Builder
	for i := range list {
		if i > 0 {
			sb.WriteByte('\n')
		}
		sb.WriteString(oneLine(list[i].Fix))
		if list[i].Got != "" && list[i].Got != "absent" {
			fmt.Fprintf(&sb, " Found: %s.", strings.TrimSuffix(oneLine(list[i].Got), "."))
		}
	}
	if rest > 0 {
		fmt.Fprintf(&sb, "\nSend the payload again after that: %s not shown.", plural(rest, "fault is", "faults are"))
	}
	return sb.String()
}

// oneLine keeps a sentence on its line, whatever it quotes.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}
