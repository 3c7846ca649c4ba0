/* SPDX-License-Identifier: MIT */
#include "dev/gid.h"

#include <stdio.h>
#include <string.h>

/* Steps of the score: the type outweighs the address. */
enum {
	SCORE_NEVER = -1,
	SCORE_IB = 100,
	SCORE_ROCE_V1 = 100,
	SCORE_ROCE_V2 = 200,
	SCORE_IPV4 = 50,
	SCORE_IPV6_GLOBAL = 40,
	SCORE_IPV6_UNIQUE_LOCAL = 30,
	SCORE_LOOPBACK = 20,
	SCORE_LINK_LOCAL = 10,
};

struct address_class {
	const char *what;
	int score;
};

static struct address_class classify_address(const struct in6_addr *address)
{
	const uint8_t *raw = address->s6_addr;

	if (IN6_IS_ADDR_UNSPECIFIED(address))
		return (struct address_class){ "no address", SCORE_NEVER };
	if (IN6_IS_ADDR_V4MAPPED(address)) {
		if (raw[12] == 127)
			return (struct address_class){ "IPv4 loopback",
						       SCORE_LOOPBACK };
		if (raw[12] == 169 && raw[13] == 254)
			return (struct address_class){ "IPv4 link-local, not routed",
						       SCORE_LINK_LOCAL };
		return (struct address_class){ "IPv4", SCORE_IPV4 };
	}
	if (IN6_IS_ADDR_LINKLOCAL(address))
		return (struct address_class){ "IPv6 link-local, not routed",
					       SCORE_LINK_LOCAL };
	if (IN6_IS_ADDR_LOOPBACK(address))
		return (struct address_class){ "IPv6 loopback", SCORE_LOOPBACK };
	if ((raw[0] & 0xfe) == 0xfc)
		return (struct address_class){ "IPv6 unique local",
					       SCORE_IPV6_UNIQUE_LOCAL };
	return (struct address_class){ "IPv6 global", SCORE_IPV6_GLOBAL };
}

void snt__gid_judge(const struct ibv_gid_entry *entry, struct snt_gid_info *gid_out)
{
	struct address_class class;
	struct in6_addr address;
	const char *type;

	memset(gid_out, 0, sizeof(*gid_out));
	memcpy(&address, entry->gid.raw, sizeof(address));
	memcpy(gid_out->raw, entry->gid.raw, sizeof(gid_out->raw));
	snt__gid_text(gid_out->raw, gid_out->text);
	class = classify_address(&address);
	gid_out->size = sizeof(*gid_out);
	gid_out->index = entry->gid_index;
	gid_out->netdev = entry->ndev_ifindex;
	switch (entry->gid_type) {
	case IBV_GID_TYPE_IB:
		gid_out->type = SNT_GID_IB;
		gid_out->score = class.score < 0 ? SCORE_NEVER : SCORE_IB;
		snprintf(gid_out->reason, sizeof(gid_out->reason), "InfiniBand");
		return;
	case IBV_GID_TYPE_ROCE_V1:
		gid_out->type = SNT_GID_ROCE_V1;
		gid_out->score = SCORE_ROCE_V1;
		type = "RoCE v1, not routed";
		break;
	default:
		gid_out->type = SNT_GID_ROCE_V2;
		gid_out->score = SCORE_ROCE_V2;
		type = "RoCE v2";
		break;
	}
	gid_out->score = class.score < 0 ? SCORE_NEVER : gid_out->score + class.score;
	snprintf(gid_out->reason, sizeof(gid_out->reason), "%s, %s", type, class.what);
}

int snt__gid_best(const struct snt_gid_info *gid, unsigned count)
{
	int best = -1;

	for (unsigned i = 0; i < count; i++)
		if (gid[i].score >= 0 && (best < 0 || gid[i].score > gid[best].score))
			best = i;
	return best;
}
