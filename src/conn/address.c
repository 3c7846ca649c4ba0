/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
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
	char text[INET6_ADDRSTRLEN] = "nobody";
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

static int error_of(int ret)
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

int snt__address_find(const char *host, uint16_t port, int flags,
		      struct sockaddr_storage *out, unsigned max)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM,
					.ai_flags = flags | AI_NUMERICSERV };
	struct addrinfo *list;
	unsigned count = 0;
	char service[8];
	int ret;

	snprintf(service, sizeof(service), "%u", port);
	ret = getaddrinfo(host, service, &hints, &list);
	if (ret == EAI_NONAME && flags & AI_NUMERICHOST)
		return snt__fail(ENOENT, "\"%s\" is not a numeric address", host);
	if (ret)
		return snt__fail(error_of(ret), "the host \"%s\" cannot be found: %s",
				 host ? host : "", gai_strerror(ret));
	for (const struct addrinfo *at = list; at && count < max; at = at->ai_next) {
		if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
			continue;
		memset(&out[count], 0, sizeof(out[count]));
		memcpy(&out[count++], at->ai_addr, at->ai_addrlen);
	}
	freeaddrinfo(list);
	if (!count)
		return snt__fail(EINVAL, "the host \"%s\" has no address",
				 host ? host : "");
	return (int)count;
}
