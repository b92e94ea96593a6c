package contract

// requiredExceptions are the required tests whose answer we do not share.
var requiredExceptions = map[int][]exception{
	4: nil,
	6: nil,
	7: {
		{"format.json", "idn-email format", "", unlistedFormat},
		{"format.json", "idn-hostname format", "", unlistedFormat},
		{"format.json", "iri format", "", unlistedFormat},
		{"format.json", "iri-reference format", "", unlistedFormat},
	},
	2019: {
		{"format.json", "idn-email format", "", unlistedFormat},
		{"format.json", "idn-hostname format", "", unlistedFormat},
		{"format.json", "iri format", "", unlistedFormat},
		{"format.json", "iri-reference format", "", unlistedFormat},
	},
	2020: {
		{"format.json", "idn-email format", "", unlistedFormat},
		{"format.json", "idn-hostname format", "", unlistedFormat},
		{"format.json", "iri format", "", unlistedFormat},
		{"format.json", "iri-reference format", "", unlistedFormat},
	},
}

const unlistedFormat = "a format outside of the closed list is refused at registration"
