/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conn/carrier.h"
#include "util/err.h"

socklen_t snt__address_size(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

uint16_t snt__address_port(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
	return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

void snt__address_set_port(struct sockaddr_storage *address, uint16_t port)
{
	if (address->ss_family == AF_INET6)
		((struct sockaddr_in6 *)address)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)address)->sin_port = htons(port);
}

static const void *bytes_of(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET6)
		return &((const struct sockaddr_in6 *)address)->sin6_addr;
	return &((const struct sockaddr_in *)address)->sin_addr;
}

const char *snt__address_text(const struct sockaddr *address, char *buffer)
{
	char text[INET6_ADDRSTRLEN] = "nowhere";
	uint16_t port = 0;

	if (address->sa_family != AF_UNSPEC) {
		inet_ntop(address->sa_family, bytes_of(address), text, sizeof(text));
		port = snt__address_port(address);
	}
	if (!port)
		snprintf(buffer, SNT__ADDRESS_TEXT, "%s", text);
	else if (address->sa_family == AF_INET6)
		snprintf(buffer, SNT__ADDRESS_TEXT, "[%s]:%u", text, port);
	else
		snprintf(buffer, SNT__ADDRESS_TEXT, "%s:%u", text, port);
	return buffer;
}

static int resolver_error(int ret)
{
	switch (ret) {
	case EAI_MEMORY:
		return ENOMEM;
	case EAI_AGAIN:
		return EHOSTUNREACH;
	default:
		return EINVAL;
	}
}

/* Only link-local addresses have a zone: "eth0", or its number. */
static bool parse_zone(const char *zone, struct sockaddr_in6 *out)
{
	const struct in6_addr *address = &out->sin6_addr;
	unsigned long number;
	char *end;

	if (IN6_IS_ADDR_LINKLOCAL(address) || IN6_IS_ADDR_MC_LINKLOCAL(address))
		out->sin6_scope_id = if_nametoindex(zone);
	if (out->sin6_scope_id)
		return true;
	errno = 0;
	number = strtoul(zone, &end, 10);
	out->sin6_scope_id = (uint32_t)number;
	return isdigit((unsigned char)zone[0]) && !*end && !errno &&
	       number <= UINT32_MAX;
}

static bool parse_ipv6(const char *host, struct sockaddr_in6 *out)
{
	const char *percent = strchrnul(host, '%');
	char text[INET6_ADDRSTRLEN];
	size_t length = (size_t)(percent - host);

	if (length >= sizeof(text))
		return false;
	memcpy(text, host, length);
	text[length] = 0;
	out->sin6_family = AF_INET6;
	return inet_pton(AF_INET6, text, &out->sin6_addr) == 1 &&
	       (!*percent || parse_zone(percent + 1, out));
}

/* inet_aton() also accepts "127.1", and ignores what follows a space. */
static bool parse_ipv4(const char *host, struct sockaddr_in *out)
{
	out->sin_family = AF_INET;
	return !host[strcspn(host, " \t\n\v\f\r")] && inet_aton(host, &out->sin_addr);
}

/*
 * Does not use getaddrinfo(), which takes a lock of the C library and opens sockets
 * even for these: a child that is forked meanwhile by another thread would find the
 * lock taken for ever, and inherit the sockets.
 */
int snt__address_parse(const char *host, uint16_t port, struct sockaddr_storage *out)
{
	int count = host ? 1 : 2;

	memset(out, 0, (size_t)count * sizeof(*out));
	if (!host) {
		out[0].ss_family = AF_INET6;
		out[1].ss_family = AF_INET;
	} else if (!parse_ipv4(host, (struct sockaddr_in *)out) &&
		   !parse_ipv6(host, (struct sockaddr_in6 *)out)) {
		return snt__fail(ENOENT, "\"%s\" is not a numeric address", host);
	}
	for (int i = 0; i < count; i++)
		snt__address_set_port(&out[i], port);
	return count;
}

int snt__address_find(const char *host, uint16_t port, struct sockaddr_storage *out,
		      unsigned max)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM,
					.ai_flags = AI_NUMERICSERV };
	struct addrinfo *list;
	unsigned count = 0;
	char service[8];
	int ret;

	snprintf(service, sizeof(service), "%u", port);
	ret = getaddrinfo(host, service, &hints, &list);
	if (ret)
		return snt__fail(resolver_error(ret),
				 "the host \"%s\" cannot be resolved: %s", host,
				 gai_strerror(ret));
	for (const struct addrinfo *at = list; at && count < max; at = at->ai_next) {
		if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
			continue;
		memset(&out[count], 0, sizeof(out[count]));
		memcpy(&out[count++], at->ai_addr, at->ai_addrlen);
	}
	freeaddrinfo(list);
	if (!count)
		return snt__fail(EINVAL, "the host \"%s\" has no address", host);
	return (int)count;
}
