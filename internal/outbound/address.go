package outbound

import (
	"net/netip"
	"slices"
)

// class says what kind of address one is.
type class int

const (
	public   class = iota
	internal       // private networks, this host: for hosts that are named
	never          // for addresses that are named themselves, and nothing else
)

// ranges that are not of the public Internet, IPv4.
// Source: IANA IPv4 Special-Purpose Address Registry.
func ranges4() []ranged {
	return []ranged{
		{netip.MustParsePrefix("10.0.0.0/8"), internal},
		{netip.MustParsePrefix("172.16.0.0/12"), internal},
		{netip.MustParsePrefix("192.168.0.0/16"), internal},
		{netip.MustParsePrefix("127.0.0.0/8"), internal},
		{netip.MustParsePrefix("100.100.100.200/32"), never}, // credentials of a cloud
		{netip.MustParsePrefix("100.64.0.0/10"), internal},
		{netip.MustParsePrefix("0.0.0.0/8"), never},
		{netip.MustParsePrefix("169.254.0.0/16"), never}, // link-local, credentials of most clouds
		{netip.MustParsePrefix("168.63.129.16/32"), never},
		{netip.MustParsePrefix("192.0.0.0/24"), never},
		{netip.MustParsePrefix("192.0.2.0/24"), never},
		{netip.MustParsePrefix("192.88.99.0/24"), never},
		{netip.MustParsePrefix("198.18.0.0/15"), never},
		{netip.MustParsePrefix("198.51.100.0/24"), never},
		{netip.MustParsePrefix("203.0.113.0/24"), never},
		{netip.MustParsePrefix("224.0.0.0/4"), never},
		{netip.MustParsePrefix("240.0.0.0/4"), never},
	}
}

// ranges6 are those of IPv6 that hold no IPv4 address. What is not in
// 2000::/3 is never public.
// Source: IANA IPv6 Special-Purpose Address Registry.
func ranges6() []ranged {
	return []ranged{
		{netip.MustParsePrefix("::1/128"), internal},
		{netip.MustParsePrefix("fd00:ec2::254/128"), never}, // credentials of clouds
		{netip.MustParsePrefix("fd20:ce::254/128"), never},
		{netip.MustParsePrefix("fc00::/7"), internal},
		{netip.MustParsePrefix("2001::/23"), never}, // Teredo among them
		{netip.MustParsePrefix("2001:db8::/32"), never},
		{netip.MustParsePrefix("3fff::/20"), never},
		{netip.MustParsePrefix("2000::/3"), public},
		{netip.MustParsePrefix("::/0"), never},
	}
}

type ranged struct {
	prefix netip.Prefix
	class  class
}

// classify returns the class of an address. One that carries an IPv4 address
// is what that is; where it is translated on the way, it is so at least.
func classify(a netip.Addr) class {
	if !a.IsValid() || a.Zone() != "" {
		return never
	}
	a = a.Unmap()
	if a.Is4() {
		return first(ranges4(), a, public)
	}
	if inner, translated := inside(a); translated {
		return classify(inner)
	}
	return first(ranges6(), a, never)
}

func first(all []ranged, a netip.Addr, otherwise class) class {
	i := slices.IndexFunc(all, func(r ranged) bool { return r.prefix.Contains(a) })
	if i < 0 {
		return otherwise
	}
	return all[i].class
}

// inside returns the IPv4 address that an IPv6 address leads to: by NAT64
// (RFC 6052) or 6to4 (RFC 3056).
func inside(a netip.Addr) (netip.Addr, bool) {
	b := a.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}
