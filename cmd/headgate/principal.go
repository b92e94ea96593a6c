package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/spf13/cobra"
)

func (a *app) principalCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "principal", Short: "Principals: who may publish and consume what"}
	cmd.AddCommand(a.principalAdd(), a.principalList(), a.principalRotate(), a.principalDisable())
	return cmd
}

func (a *app) principalAdd() *cobra.Command {
	var p api.Principal
	var kind string
	var roles []string
	var rate float64
	var burst int
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add a principal and print its token, this once", Args: cobra.ExactArgs(1),
		Example: "  headgate principal add triage --kind agent --emit 'ticket.*' --listen ticket.opened",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			p.Name, p.Kind = args[0], headgate.Kind(kind)
			for _, r := range roles {
				p.Roles = append(p.Roles, headgate.Role(r))
			}
			if rate > 0 {
				p.Roots = &api.RootRight{Rate: rate, Burst: burst}
			}
			got, err := c.AddPrincipal(cmd.Context(), p)
			if err != nil {
				return err
			}
			return a.print(got, func(w io.Writer) { a.printToken(w, got) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&kind, "kind", "agent", "human, agent or system")
	f.StringSliceVar(&roles, "role", nil, "viewer, developer, operator, approver or admin (repeatable)")
	f.StringSliceVar(&p.Emit, "emit", nil, "types it may publish (repeatable)")
	f.StringSliceVar(&p.Listen, "listen", nil, "types it may consume (repeatable)")
	f.StringSliceVar(&p.Lease, "lease", nil, "resources it may lease, such as 'ticket/*' (repeatable)")
	f.Float64Var(&rate, "roots", 0, "causal trees a second that it may start; default: none")
	f.IntVar(&burst, "burst", 0, "causal trees that it may start at once")
	return cmd
}

func (a *app) printToken(w io.Writer, p api.NewPrincipal) {
	fmt.Fprintf(w, "%s (%s)\ntoken, shown this once:\n%s\n", plain(p.Name), p.Kind, p.Token)
}

func (a *app) principalList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List principals", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var all api.Principals
			err = pages(func(p client.Page) (string, error) {
				page, err := c.Principals(cmd.Context(), p)
				all.Principals = append(all.Principals, page.Principals...)
				return page.Next, err
			})
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) {
				rows := make([][]string, len(all.Principals))
				for i, p := range all.Principals {
					roots := "none"
					if p.Roots != nil {
						roots = strconv.FormatFloat(p.Roots.Rate, 'f', -1, 64) + "/s"
					}
					state := "active"
					if p.Disabled {
						state = "disabled"
					}
					rows[i] = []string{p.Name, string(p.Kind), state, dash(p.Emit), dash(p.Listen), roots, dash(p.Roles), p.Managed}
				}
				table(w, "NAME KIND STATE EMIT LISTEN ROOTS ROLES MANAGED", rows)
			})
		},
	}
}

// dash lists words; "-" when there is none.
func dash[T ~string](list []T) string {
	words := make([]string, len(list))
	for i, w := range list {
		words[i] = string(w)
	}
	return firstOf(strings.Join(words, ","), "-")
}

func (a *app) principalRotate() *cobra.Command {
	var grace string
	cmd := &cobra.Command{
		Use: "rotate NAME", Short: "Replace the tokens of a principal and print the new one", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := api.ParseDuration(grace)
			if err != nil {
				return usageError{err}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			got, err := c.RotatePrincipal(cmd.Context(), args[0], d)
			if err != nil {
				return err
			}
			return a.print(got, func(w io.Writer) { a.printToken(w, got) })
		},
	}
	cmd.Flags().StringVar(&grace, "grace", "0s", "how long earlier tokens stay valid")
	return cmd
}

func (a *app) principalDisable() *cobra.Command {
	return &cobra.Command{
		Use: "disable NAME", Short: "Refuse every further request of a principal", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			got, err := c.DisablePrincipal(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(got, func(w io.Writer) { fmt.Fprintf(w, "%s is disabled\n", plain(got.Name)) })
		},
	}
}
