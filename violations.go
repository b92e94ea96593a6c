package headgate

// ViolationInfo is one row of the closed table of violation codes.
type ViolationInfo struct {
	Code ViolationCode
	// Title says what is wrong, as a short sentence without a full stop.
	Title string
}

// ViolationCodes returns a copy of the closed table of violation codes, in the
// order of the documentation.
func ViolationCodes() []ViolationInfo {
	table := violations
	return table[:]
}

var violations = [...]ViolationInfo{
	{ViolationSyntax, "The payload is not well-formed JSON, or not Avro binary of the contract's schema"},
	{ViolationBadUTF8, "A string is not valid UTF-8, or holds half a surrogate pair"},
	{ViolationDuplicateKey, "An object has the same name twice, perhaps spelt with escapes"},
	{ViolationNumberTooLarge, "A number has too many digits or too large an exponent"},
	{ViolationTooDeep, "Objects and arrays are nested too deep"},
	{ViolationTooLarge, "The payload has too many bytes"},
	{ViolationMissingRequired, "A required field is missing; at names the field itself"},
	{ViolationUnknownProperty, "A field is not in the contract, which allows no others"},
	{ViolationWrongType, "The value is of another type than the contract asks for"},
	{ViolationBadFormat, "A string is not of its format, such as uuid or date-time"},
	{ViolationBadPattern, "A string or a name does not match its pattern"},
	{ViolationNotInEnum, "The value is none of those that are allowed"},
	{ViolationNotConst, "The value is not the one that is allowed"},
	{ViolationOutOfRange, "A number is below its minimum or above its maximum"},
	{ViolationNotMultiple, "A number is not a multiple of what the contract names"},
	{ViolationBadLength, "A string has too few or too many characters"},
	{ViolationBadCount, "An array or object has too few or too many entries, or of one kind"},
	{ViolationNotUnique, "An array has the same entry twice"},
	{ViolationNoBranch, "The value matches none of the alternatives"},
	{ViolationManyBranches, "The value matches more than one alternative where exactly one must match"},
	{ViolationForbidden, "The contract allows nothing here, or forbids just this"},
	{ViolationDependency, "A field is missing that another field of the object demands"},
	{ViolationTooComplex, "The payload makes the check cost more work than it may"},
	{ViolationBadFrame, "The payload begins with a frame that is cut short, names no version of the contract, or may be part of the value"},
}
