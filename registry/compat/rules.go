package compat

// Rule is one kind of change that can make a reader refuse what a writer
// wrote.
type Rule struct {
	// ID is stable: lower case and underscores.
	ID string
	// Says is one sentence about the reader's schema, seen from the writer's.
	Says string
	// Fix is what to do instead.
	Fix string
	// forgivenBy is the rank of the least lenient policy that forgives the
	// rule; never is forgiven by none.
	forgivenBy int
}

const never = 3

// Forgiven reports whether a policy overlooks the rule.
func (r *Rule) Forgiven(p Policy) bool { return p.rank() >= r.forgivenBy }

// ruleSet holds every rule; the page docs/registry.md is written from it.
type ruleSet struct {
	typeNarrowed, enumNarrowed, enumAdded, constChanged,
	maximum, minimum, multipleOf, maxLength, minLength, pattern, format,
	required, requiredDefault, openAdded, closedRemoved, additionalRemoved, patternPropertyAdded, patternPropertyRemoved,
	propertyNames, maxProperties, minProperties, dependency, unevaluatedProperties,
	maxItems, minItems, uniqueItems, itemsRemoved, contains, unevaluatedItems,
	union, not, condition, dynamicRef, refuses,
	reference, kind, unreadable, tooComplex, avro Rule
}

func newRules() *ruleSet {
	return &ruleSet{
		typeNarrowed:           Rule{"type_narrowed", "A type that the writer may use is not allowed.", "Keep the type, or allow both.", never},
		enumNarrowed:           Rule{"enum_narrowed", "A value that the writer may use is not allowed.", "Keep the value in the list.", never},
		enumAdded:              Rule{"enum_added", "Only listed values are allowed, and the writer is not bound to a list.", "Leave the list to a new property.", never},
		constChanged:           Rule{"const_changed", "Another constant is demanded.", "Use enum with both values.", never},
		maximum:                Rule{"maximum_lowered", "The largest number is smaller than what the writer may use.", "Keep the bound or raise it.", never},
		minimum:                Rule{"minimum_raised", "The smallest number is larger than what the writer may use.", "Keep the bound or lower it.", never},
		multipleOf:             Rule{"multiple_of_changed", "Numbers must be multiples of what the writer's need not be.", "Keep multipleOf, or use a divisor of it.", never},
		maxLength:              Rule{"max_length_lowered", "Strings must be shorter than what the writer may use.", "Keep maxLength or raise it.", never},
		minLength:              Rule{"min_length_raised", "Strings must be longer than what the writer may use.", "Keep minLength or lower it.", never},
		pattern:                Rule{"pattern_changed", "Strings must match a pattern that the writer's need not match.", "Keep the pattern; whether one pattern covers another is not decided.", never},
		format:                 Rule{"format_changed", "Strings must have a format that the writer's need not have.", "Keep the format, or use a new property.", never},
		required:               Rule{"required_added", "A property is required that the writer may leave out.", "Make it optional, or give it a default.", never},
		requiredDefault:        Rule{"required_with_default_added", "A property is required that the writer may leave out; it has a default.", "Make it optional where defaults are not filled in.", 1},
		openAdded:              Rule{"property_added_to_open_model", "A property is declared under a name that the writer may use for anything.", "Close the schema with additionalProperties: false, or use the policy lenient.", 2},
		closedRemoved:          Rule{"property_removed_from_closed_model", "A property that the writer may use is refused as undeclared.", "Keep the property, or use the policy lenient.", 2},
		additionalRemoved:      Rule{"additional_properties_removed", "Undeclared properties are refused, and the writer may use them.", "Leave the schema open, or use the policy lenient.", 2},
		patternPropertyAdded:   Rule{"pattern_property_added", "Names that match a pattern are bound to a schema, and the writer may use them for anything.", "Close the schema first, or use the policy lenient.", 2},
		patternPropertyRemoved: Rule{"pattern_property_removed", "Names that match a pattern are refused as undeclared, and the writer may use them.", "Keep the pattern, or use the policy lenient.", 2},
		propertyNames:          Rule{"property_names_added", "Names of properties are bound, and the writer's are not.", "Keep propertyNames as it was.", never},
		maxProperties:          Rule{"max_properties_lowered", "Fewer properties are allowed than the writer may use.", "Keep maxProperties or raise it.", never},
		minProperties:          Rule{"min_properties_raised", "More properties are demanded than the writer must use.", "Keep minProperties or lower it.", never},
		dependency:             Rule{"dependency_added", "One property demands another, or a schema, that the writer does not hold to.", "Keep the dependencies as they were.", never},
		unevaluatedProperties:  Rule{"unevaluated_properties_removed", "Undeclared properties are refused, and the writer may use them.", "Leave the schema open, or use the policy lenient.", 2},
		maxItems:               Rule{"max_items_lowered", "Fewer items are allowed than the writer may use.", "Keep maxItems or raise it.", never},
		minItems:               Rule{"min_items_raised", "More items are demanded than the writer must use.", "Keep minItems or lower it.", never},
		uniqueItems:            Rule{"unique_items_added", "Items must differ, and the writer's need not.", "Leave uniqueItems out.", never},
		itemsRemoved:           Rule{"items_removed_from_closed_model", "Items at a place that the writer may use are refused.", "Keep the place, or allow further items.", never},
		contains:               Rule{"contains_changed", "An item of a kind is demanded or bounded, and the writer does not hold to it.", "Keep contains as it was.", never},
		unevaluatedItems:       Rule{"unevaluated_items_removed", "Undeclared items are refused, and the writer may use them.", "Leave the array open.", never},
		union:                  Rule{"union_narrowed", "No branch takes all that the writer may use.", "Keep the branch that did.", never},
		not:                    Rule{"not_extended", "More is excluded than the writer excludes.", "Keep not as it was, or exclude less.", never},
		condition:              Rule{"condition_changed", "A condition (if, then, else) differs from the writer's.", "Keep the condition as it was.", never},
		dynamicRef:             Rule{"dynamic_reference", "A dynamic reference is in the way of the comparison.", "Use $ref.", never},
		refuses:                Rule{"nothing_allowed", "Nothing is allowed where the writer may use something.", "Allow what was allowed.", never},
		reference:              Rule{"reference_unresolved", "A reference leads nowhere.", "Register what it refers to, and list it under references.", never},
		kind:                   Rule{"schema_type_changed", "The kind of schema differs.", "Use a new subject for another kind of schema.", never},
		unreadable:             Rule{"unreadable", "The schema cannot be read.", "Mend the schema.", never},
		tooComplex:             Rule{"too_complex", "The schemas are too complex to compare within the bound of work.", "Use fewer branches in anyOf and oneOf, or name them with a constant property.", never},
		avro:                   Rule{"avro_resolution", "Avro's rules of schema resolution do not lead from the writer to the reader.", "Add fields with defaults only, keep names or add aliases, and widen types only.", never},
	}
}

// Rules returns every rule, in the order of the documentation.
func Rules() []Rule {
	r := newRules()
	return []Rule{
		r.typeNarrowed, r.enumNarrowed, r.enumAdded, r.constChanged,
		r.maximum, r.minimum, r.multipleOf, r.maxLength, r.minLength, r.pattern, r.format,
		r.required, r.requiredDefault, r.openAdded, r.closedRemoved, r.additionalRemoved, r.patternPropertyAdded, r.patternPropertyRemoved,
		r.propertyNames, r.maxProperties, r.minProperties, r.dependency, r.unevaluatedProperties,
		r.maxItems, r.minItems, r.uniqueItems, r.itemsRemoved, r.contains, r.unevaluatedItems,
		r.union, r.not, r.condition, r.dynamicRef, r.refuses,
		r.reference, r.kind, r.unreadable, r.tooComplex, r.avro,
	}
}
