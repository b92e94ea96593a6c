package confluent

import (
	"encoding/json"

	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/registry/compat"
)

// configured is a configuration in an answer to GET.
type configured struct {
	Level     string `json:"compatibilityLevel,omitempty"`
	Policy    string `json:"compatibilityPolicy,omitempty"`
	Normalize *bool  `json:"normalize,omitempty"`
}

// changed is a configuration in an answer to PUT, which names the level
// otherwise.
type changed struct {
	Level     string `json:"compatibility,omitempty"`
	Policy    string `json:"compatibilityPolicy,omitempty"`
	Normalize *bool  `json:"normalize,omitempty"`
}

func (c *call) scope() string {
	if s := c.PathValue("subject"); s != "" || c.context == "" {
		return c.qualify(s)
	}
	return ":" + c.context + ":"
}

// shownConfig leaves out a policy that nobody chose: old clients know none.
func shownConfig(cfg registry.Compatibility) configured {
	out := configured{Level: cfg.Level.Wire(), Normalize: cfg.Normalize}
	if cfg.Policy != compat.Lenient {
		out.Policy = cfg.Policy.Wire()
	}
	return out
}

func getConfig(c *call) (answer, error) {
	cfg, err := c.face.cfg.Registry.Config(c.Context(), c.scope(), c.flag("defaultToGlobal"))
	return answer{body: shownConfig(cfg)}, err
}

// unavailable are settings that clients know and this registry does not have.
func unavailable() []string {
	return []string{
		"alias", "aliasForDeks", "validateFields", "validateNewSchemas", "validateRules", "compatibilityGroup",
		"defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet",
	}
}

func putConfig(c *call) (answer, error) {
	members, err := c.object()
	if err != nil {
		return answer{}, err
	}
	change, out, err := readConfig(members)
	if err != nil {
		return answer{}, err
	}
	_, err = c.face.cfg.Registry.SetConfig(c.Context(), c.scope(), change)
	return answer{body: out}, err
}

func readConfig(members map[string]json.RawMessage) (registry.Compatibility, changed, error) {
	var change registry.Compatibility
	var out changed
	var level string
	for _, name := range []string{"compatibilityLevel", "compatibility"} {
		if err := take(members, name, &level); err != nil {
			return change, out, err
		}
	}
	if err := take(members, "compatibilityPolicy", &out.Policy); err != nil {
		return change, out, err
	}
	if err := take(members, "normalize", &out.Normalize); err != nil {
		return change, out, err
	}
	if err := rest(members, unavailable()...); err != nil {
		return change, out, err
	}
	if level == "" && out.Policy == "" && out.Normalize == nil {
		return change, out, invalidLevel()
	}
	ok := true
	if level != "" {
		if change.Level, ok = compat.ParseLevel(level); !ok {
			return change, out, invalidLevel()
		}
		out.Level = change.Level.Wire()
	}
	if out.Policy != "" {
		if change.Policy, ok = compat.ParsePolicy(out.Policy); !ok {
			return change, out, &registry.Fault{Code: registry.FaultInvalidLevel, Detail: "Invalid compatibility policy. Valid values are logical, strict and lenient"}
		}
		out.Policy = change.Policy.Wire()
	}
	change.Normalize = out.Normalize
	return change, out, nil
}

func invalidLevel() error {
	return &registry.Fault{
		Code:   registry.FaultInvalidLevel,
		Detail: "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive",
	}
}

func deleteConfig(c *call) (answer, error) {
	cfg, err := c.face.cfg.Registry.DeleteConfig(c.Context(), c.scope())
	return answer{body: shownConfig(cfg)}, err
}

type mode struct {
	Mode string `json:"mode"`
}

func getMode(c *call) (answer, error) {
	m, err := c.face.cfg.Registry.Mode(c.Context(), c.scope(), c.flag("defaultToGlobal"))
	return answer{body: mode{string(m)}}, err
}

func putMode(c *call) (answer, error) {
	members, err := c.object()
	if err != nil {
		return answer{}, err
	}
	var wanted string
	if err := take(members, "mode", &wanted); err != nil {
		return answer{}, err
	}
	if err := rest(members); err != nil {
		return answer{}, err
	}
	m := registry.Mode(wanted)
	switch m {
	case registry.ReadWrite, registry.ReadOnly, registry.ReadOnlyOverride, registry.Import:
	default:
		return answer{}, &registry.Fault{
			Code: registry.FaultInvalidMode, Detail: "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT",
		}
	}
	err = c.face.cfg.Registry.SetMode(c.Context(), c.scope(), m, c.flag("force"))
	return answer{body: mode{string(m)}}, err
}

func deleteMode(c *call) (answer, error) {
	m, err := c.face.cfg.Registry.DeleteMode(c.Context(), c.scope(), c.flag("recursive"))
	return answer{body: mode{string(m)}}, err
}
