package condition

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"

	"github.com/headgate/headgate"
)

// cheap reports whether an expression can never reach the cost limit, whatever
// event comes: then nobody needs to count, which costs more than most
// conditions do. Attributes have bounded sizes; data has not.
func cheap(env *cel.Env, ast *cel.Ast) bool {
	estimate, err := env.EstimateCost(ast, bounds{})
	return err == nil && estimate.Max <= costLimit
}

// bounds tells the estimator how large the parts of an event can be.
type bounds struct{}

// EstimateSize bounds the attributes; nil means unknown.
func (bounds) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	path := n.Path()
	if len(path) == 0 {
		return nil
	}
	switch path[0] {
	case "id", "source", "type", "subject", "key", "origin", "principal", "actor", "rootid":
		return &cost.SizeEstimate{Max: headgate.MaxAttributeLength}
	case "ext":
		if len(path) == 1 {
			return &cost.SizeEstimate{Max: headgate.MaxExtensions}
		}
		return &cost.SizeEstimate{Max: headgate.MaxAttributeLength}
	}
	return nil
}

// EstimateCallCost leaves all functions to the estimator.
func (bounds) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}
