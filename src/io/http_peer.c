/*
 * The judge of addresses. All are compared as IPv6: IPv4 lies in ::ffff:0:0/96, and addresses that carry
 * one for a translator are judged by what they carry.
 */
#include "io/http_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "io/url.h"

#define NETWORKS_MAX 64
#define ENTRY_MAX 256
#define IPV4_BITS 96			/* before an IPv4 address */

typedef struct Network
{
	uint8_t		address[16];
	int			bits;			/* that count */
} Network;

struct TbPeers
{
	bool		any;
	bool		has_address;	/* the url names one */
	uint8_t		address[16];
	bool		localhost;		/* the url says so */
	Network		network[NETWORKS_MAX];
	int			n_networks;
};

typedef enum Reach
{
	REACH_PUBLIC,
	REACH_INSIDE,				/* loopback, private: for who asks by address */
	REACH_NOBODY				/* not an object store's */
} Reach;

typedef struct Special
{
	const char *network;
	int			bits;
	Reach		reach;
} Special;

/* https://www.iana.org/assignments/iana-ipv4-special-registry, iana-ipv6-special-registry. The first that
 * fits counts. */
static const Special special[] = {
	{"::ffff:10.0.0.0", 104, REACH_INSIDE},
	{"::ffff:100.64.0.0", 106, REACH_INSIDE},	/* behind a provider's NAT */
	{"::ffff:127.0.0.0", 104, REACH_INSIDE},
	{"::ffff:172.16.0.0", 108, REACH_INSIDE},
	{"::ffff:192.168.0.0", 112, REACH_INSIDE},
	{"::ffff:198.18.0.0", 111, REACH_INSIDE},	/* benchmarks */
	{"::ffff:192.0.2.0", 120, REACH_INSIDE},	/* documentation, as the next two */
	{"::ffff:198.51.100.0", 120, REACH_INSIDE},
	{"::ffff:203.0.113.0", 120, REACH_INSIDE},
	{"::ffff:0.0.0.0", 104, REACH_NOBODY},
	{"::ffff:169.254.0.0", 112, REACH_NOBODY},	/* link-local: metadata services */
	{"::ffff:192.0.0.0", 120, REACH_NOBODY},
	{"::ffff:168.63.129.16", 128, REACH_NOBODY},	/* Azure's */
	{"::ffff:224.0.0.0", 100, REACH_NOBODY},
	{"::ffff:240.0.0.0", 100, REACH_NOBODY},
	{"::ffff:0:0", 96, REACH_PUBLIC},
	{"::1", 128, REACH_INSIDE},
	{"::", 96, REACH_NOBODY},
	{"64:ff9b:1::", 48, REACH_INSIDE},
	{"100::", 64, REACH_NOBODY},
	{"2001::", 32, REACH_NOBODY},	/* Teredo */
	{"2001:db8::", 32, REACH_INSIDE},
	{"fd00:ec2::", 32, REACH_NOBODY},	/* EC2's metadata and time */
	{"fd20:ce::", 32, REACH_NOBODY},	/* Google's */
	{"fc00::", 7, REACH_INSIDE},
	{"fe80::", 10, REACH_NOBODY},
	{"fec0::", 10, REACH_NOBODY},
	{"ff00::", 8, REACH_NOBODY},
};

static bool
is_in(const uint8_t a[16], const uint8_t network[16], int bits)
{
	int			bytes = bits / 8;
	int			rest = bits % 8;

	if (memcmp(a, network, (size_t) bytes) != 0)
		return false;
	return rest == 0 || ((a[bytes] ^ network[bytes]) >> (8 - rest)) == 0;
}

static void
map_ipv4(const void *ipv4, uint8_t out[16])
{
	memset(out, 0, 10);
	out[10] = out[11] = 0xff;
	memcpy(out + 12, ipv4, 4);
}

static bool
parse_address(const char *text, uint8_t out[16])
{
	uint8_t		ipv4[4];

	if (inet_pton(AF_INET, text, ipv4) == 1)
	{
		map_ipv4(ipv4, out);
		return true;
	}
	return inet_pton(AF_INET6, text, out) == 1;
}

/* An IPv4 address that travels in an IPv6 one by translation (NAT64, 6to4) is what is reached. */
static void
unwrap(uint8_t a[16])
{
	static const uint8_t nat64[12] = {0, 0x64, 0xff, 0x9b};

	if (memcmp(a, nat64, sizeof(nat64)) == 0)
		map_ipv4((const uint8_t[4]) {a[12], a[13], a[14], a[15]}, a);
	else if (a[0] == 0x20 && a[1] == 0x02)
		map_ipv4((const uint8_t[4]) {a[2], a[3], a[4], a[5]}, a);
}

static Reach
reach_of(const uint8_t a[16])
{
	for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
	{
		uint8_t		network[16];

		if (inet_pton(AF_INET6, special[i].network, network) == 1 && is_in(a, network, special[i].bits))
			return special[i].reach;
	}
	return REACH_PUBLIC;
}

static bool
allow(const TbPeers *peers, uint8_t a[16])
{
	static const uint8_t loopback6[16] = {[15] = 1};
	static const uint8_t loopback4[16] = {[10] = 0xff, [11] = 0xff, [12] = 127};

	if (peers->any)
		return true;
	for (int i = 0; i < peers->n_networks; i++)
		if (is_in(a, peers->network[i].address, peers->network[i].bits))
			return true;
	unwrap(a);
	switch (reach_of(a))
	{
		case REACH_PUBLIC:
			return true;
		case REACH_INSIDE:
			return (peers->has_address && memcmp(a, peers->address, 16) == 0) ||
				(peers->localhost && (is_in(a, loopback6, 128) || is_in(a, loopback4, 104)));
		case REACH_NOBODY:
			break;
	}
	return false;
}

bool
tb_peers_allow(const TbPeers *peers, const struct sockaddr *address, socklen_t len)
{
	uint8_t		a[16];

	if (address->sa_family == AF_INET && len >= sizeof(struct sockaddr_in))
		map_ipv4(&((const struct sockaddr_in *) (const void *) address)->sin_addr, a);
	else if (address->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6))
		memcpy(a, &((const struct sockaddr_in6 *) (const void *) address)->sin6_addr, 16);
	else
		return peers->any;
	return allow(peers, a);
}

bool
tb_peers_allow_text(const TbPeers *peers, const char *address)
{
	char		plain[INET6_ADDRSTRLEN];
	size_t		len = strcspn(address, "%");	/* without a zone */
	uint8_t		a[16];

	if (len >= sizeof(plain))
		return peers->any;
	memcpy(plain, address, len);
	plain[len] = '\0';
	return parse_address(plain, a) ? allow(peers, a) : peers->any;
}

/* "10.0.0.0/8", "fd12::/16", "10.1.2.3"; false: entry is no such thing. */
static bool
parse_network(const char *entry, Network *network)
{
	char		text[ENTRY_MAX];
	char	   *slash;
	char	   *end;
	long		bits = 128;
	size_t		len = strlen(entry);

	if (entry[0] == '[' && entry[len - 1] == ']')
	{
		entry++;
		len -= 2;
	}
	(void) snprintf(text, sizeof(text), "%.*s", (int) len, entry);
	slash = strchr(text, '/');
	if (slash != NULL)
		*slash = '\0';
	if (!parse_address(text, network->address))
		return false;
	if (slash != NULL)
	{
		bits = strtol(slash + 1, &end, 10);
		if (slash[1] < '0' || slash[1] > '9' || *end != '\0')
			return false;
		if (strchr(text, ':') == NULL)
			bits += IPV4_BITS;
	}
	network->bits = (int) bits;
	return bits >= 0 && bits <= 128;
}

/* Whether entry, a name or "*." and a domain, stands for host. */
static bool
names_host(const char *entry, const char *host)
{
	size_t		entry_len;
	size_t		host_len = strlen(host);

	if (strncmp(entry, "*.", 2) != 0)
		return strcasecmp(entry, host) == 0;
	entry++;
	entry_len = strlen(entry);
	return host_len > entry_len && strcasecmp(host + host_len - entry_len, entry) == 0;
}

static bool
is_name(const char *entry)
{
	if (strncmp(entry, "*.", 2) == 0)
		entry += 2;
	return entry[0] != '\0' &&
		strspn(entry, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") == strlen(entry);
}

/* One entry of allowed_hosts. NULL: nothing wrong. */
static const char *
add_entry(TbPeers *peers, const char *entry, const char *host)
{
	if (peers->n_networks == NETWORKS_MAX)
		return "there are too many entries";
	if (parse_network(entry, &peers->network[peers->n_networks]))
	{
		peers->n_networks++;
		return NULL;
	}
	if (!is_name(entry))
		return "an entry is neither a host name nor a network";
	if (names_host(entry, host))
		peers->any = true;
	return NULL;
}

static const char *
add_entries(TbPeers *peers, const char *list, const char *host)
{
	const char *fault = NULL;

	while (fault == NULL && *list != '\0')
	{
		char		entry[ENTRY_MAX];
		size_t		len;

		list += strspn(list, " \t,");
		len = strcspn(list, " \t,");
		if (len == 0)
			break;
		if (len >= sizeof(entry))
			return "an entry is too long";
		memcpy(entry, list, len);
		entry[len] = '\0';
		fault = add_entry(peers, entry, host);
		list += len;
	}
	return fault;
}

/* What the url's own words allow. */
static void
read_host(TbPeers *peers, const char *host)
{
	size_t		len = strlen(host);
	char		bare[INET6_ADDRSTRLEN];

	if (host[0] == '[' && len >= 2 && len - 2 < sizeof(bare))
	{
		memcpy(bare, host + 1, len - 2);
		bare[len - 2] = '\0';
		peers->has_address = parse_address(bare, peers->address);
	}
	else
		peers->has_address = parse_address(host, peers->address);
	if (peers->has_address)
		unwrap(peers->address);
	peers->localhost = strcasecmp(host, "localhost") == 0 ||
		(len > 10 && strcasecmp(host + len - 10, ".localhost") == 0);
}

TbStatus
tb_peers_new(const char *url, const TbStoreSpec *spec, TbPeers **out, TbError *err)
{
	TbPeers    *peers;
	TbUrlServer server;
	const char *fault = NULL;
	TbStatus	status = tb_url_server(url, &server, err);

	*out = NULL;
	if (status != TB_OK)
		return status;
	peers = tb_calloc(1, sizeof(*peers));
	if (peers == NULL)
	{
		tb_url_server_free(&server);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	peers->any = spec->any_address;
	read_host(peers, server.host);
	if (spec->allowed_hosts != NULL)
		fault = add_entries(peers, spec->allowed_hosts, server.host);
	tb_url_server_free(&server);
	if (fault != NULL)
	{
		tb_free(peers);
		status = tb_fail(err, TB_E_INVALID, "invalid list of allowed hosts");
		tb_error_detail(err, "%s", fault);
		tb_error_hint(err, "Use names, addresses and networks such as 10.0.0.0/8, separated by commas.");
		return status;
	}
	*out = peers;
	return TB_OK;
}

void
tb_peers_free(TbPeers *peers)
{
	tb_free(peers);
}

void
tb_peers_hash(const TbPeers *peers, uint8_t hash[32])
{
	(void) SHA256((const uint8_t *) peers, sizeof(*peers), hash);	/* plain values, zeroed when made */
}

int
tb_peer_own_port(int fd)
{
	struct sockaddr_storage address;
	socklen_t	len = sizeof(address);

	if (getsockname(fd, (struct sockaddr *) &address, &len) != 0)
		return 0;
	if (address.ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *) &address)->sin6_port);
	return address.ss_family == AF_INET ? ntohs(((const struct sockaddr_in *) &address)->sin_port) : 0;
}
