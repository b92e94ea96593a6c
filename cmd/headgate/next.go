package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// nextCommands are what to type after a command that succeeded and knew
// nothing better to suggest. NAME stands for the command's first argument.
func nextCommands() map[string]string {
	return map[string]string{
		"bench":               "headgate dev",
		"broker adopt":        "headgate serve --config FILE",
		"broker owner":        "headgate serve --config FILE",
		"check":               "headgate serve --config NAME",
		"config effective":    "headgate check FILE",
		"contract add":        "headgate contract check NAME PAYLOAD",
		"contract check":      "headgate emit TYPE PAYLOAD",
		"contract diff":       "headgate contract show NAME",
		"contract export":     "headgate contract check NAME PAYLOAD",
		"contract lint":       "headgate contract add SUBJECT NAME",
		"contract ls":         "headgate contract show SUBJECT",
		"contract rm":         "headgate contract show NAME",
		"contract show":       "headgate contract check NAME PAYLOAD",
		"bench load":          "headgate bench sink",
		"bench sink":          "headgate bench load --database URL",
		"demo poison":         "headgate dev",
		"demo storm":          "headgate demo poison",
		"dev":                 "headgate dev",
		"doctor":              "headgate quarantine groups",
		"emit":                "headgate listen NAME --from beginning",
		"explain":             "headgate tree ROOT_ID",
		"import":              "headgate doctor",
		"inbox init":          "headgate inbox status --url …",
		"inbox maintain":      "headgate inbox status --url …",
		"inbox status":        "headgate inbox maintain --url …",
		"inbox doctor":        "headgate inbox status --url …",
		"lease acquire":       "headgate lease show NAME",
		"lease fence-table":   "headgate lease acquire RESOURCE",
		"lease ls":            "headgate lease show RESOURCE",
		"lease release":       "headgate lease show NAME",
		"lease renew":         "headgate lease show NAME",
		"lease revoke":        "headgate lease show NAME",
		"lease show":          "headgate lease watch NAME",
		"lease watch":         "headgate lease ls",
		"listen":              "headgate doctor",
		"outbox doctor":       "headgate outbox status",
		"outbox init":         "headgate outbox doctor",
		"outbox replay":       "headgate outbox status",
		"outbox status":       "headgate outbox doctor",
		"outbox unwatch":      "headgate outbox status",
		"outbox watch":        "headgate outbox status",
		"principal add":       "headgate subscription add SUBSCRIPTION TYPE --as NAME",
		"principal disable":   "headgate principal ls",
		"principal ls":        "headgate principal add NAME",
		"principal rotate":    "headgate principal ls",
		"quarantine export":   "headgate quarantine groups",
		"quarantine groups":   "headgate quarantine ls",
		"quarantine ls":       "headgate quarantine groups",
		"quarantine show":     "headgate quarantine groups",
		"serve":               "headgate check FILE",
		"subscription add":    "headgate subscription show NAME",
		"subscription ls":     "headgate subscription show NAME",
		"subscription pause":  "headgate subscription resume NAME",
		"subscription resume": "headgate subscription show NAME",
		"subscription rm":     "headgate subscription ls",
		"subscription show":   "headgate doctor",
		"tail":                "headgate explain EVENT_ID",
		"tree":                "headgate explain EVENT_ID",
		"version":             "headgate dev",
	}
}

// suggest prints the next command after cmd, unless cmd suggested one.
func (a *app) suggest(cmd *cobra.Command) {
	if help := cmd.Flags().Lookup("help"); a.suggested || (help != nil && help.Changed) {
		return
	}
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	next, ok := nextCommands()[path]
	if !ok {
		return
	}
	if args := cmd.Flags().Args(); len(args) > 0 {
		next = strings.Replace(next, "NAME", plain(args[0]), 1)
	}
	a.next("%s", next)
}
