/* SPDX-License-Identifier: MIT */
/* Addresses, the lists they come from, and which process may have their port. */
#include "lib/fds.h"
#include "lib/test.h"

#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>
#include <sennit/sennit.h>

#include "dev/gid.h"
#include "dev/soft/udp/address.h"
#include "lib/loopback.h"

static struct snt__udp_address addresses[4];

static int parse(const char *text)
{
	return snt__udp_addresses((struct snt__value){ text, "WHERE" }, addresses, 4);
}

static const char *text_of(unsigned i)
{
	static char text[SNT__GID_TEXT];

	return snt__gid_text(addresses[i].gid, text);
}

static void lists(void **state)
{
	(void)state;
	assert_int_equal(parse("127.0.0.1,127.9.8.7"), 2);
	assert_string_equal(text_of(1), "127.9.8.7");
	assert_int_equal(addresses[1].ip_mtu, addresses[0].ip_mtu);
	assert_int_equal(addresses[1].scope, 0);
	assert_true(snt__udp_is_ipv4(addresses[1].gid));
	assert_true(parse("lo") >= 1);
	assert_string_equal(text_of(0), "127.0.0.1");
	assert_error(parse("127.0.0.1,127.0.0.1"), EINVAL,
		     "WHERE names 127.0.0.1 twice");
	assert_error(parse("127.0.0.1,lo"), EINVAL, "twice");
	assert_error(parse("127.0.0.1,,127.0.0.2"), EINVAL, "is not an address");
	assert_error(parse("127.0.0.1,"), EINVAL, "is not an address");
	assert_error(parse("127.0.0.256"), EINVAL, "neither an IP address nor");
	assert_error(parse("nosuch0"), EINVAL, "\"nosuch0\" is neither");
	assert_error(parse("192.0.2.77"), EADDRNOTAVAIL, "has the address 192.0.2.77");
	assert_error(parse("2001:db8::1"), EADDRNOTAVAIL, "2001:db8::1");
	assert_error(parse("127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4,127.0.0.5"), E2BIG,
		     "more than 4");
	assert_error(
		parse("a-name-that-is-much-longer-than-that-of-any-interface-may-be-"
		      "anywhere"),
		EINVAL, "is not an address");
}

/* As ip(8) and ping(8) take those that several interfaces may have. */
static void zones(void **state)
{
	(void)state;
	assert_int_equal(parse("127.0.0.1%lo"), 1);
	assert_string_equal(text_of(0), "127.0.0.1");
	assert_error(parse("127.0.0.1%nosuch0"), EADDRNOTAVAIL,
		     "nosuch0 does not have the address 127.0.0.1");
	assert_error(parse("127.0.0.1%"), EADDRNOTAVAIL, "does not have the address");
	assert_error(parse("%lo"), EINVAL, "\"%lo\" is neither");
}

static void loopback(void **state)
{
	char text[SNT__GID_TEXT];
	uint8_t gid[16];

	(void)state;
	assert_success(snt__udp_loopback(&addresses[0]));
	assert_string_equal(text_of(0), "127.0.0.1");
	snt__udp_loopback_gid(253, gid);
	assert_string_equal(snt__gid_text(gid, text), "127.0.0.254");
	snt__udp_loopback_gid(254, gid);
	assert_string_equal(snt__gid_text(gid, text), "127.0.1.1");
	snt__udp_loopback_gid(SNT__UDP_LOOPBACK_MAX - 1, gid);
	assert_string_equal(snt__gid_text(gid, text), "127.0.15.254");
}

static void mtus(void **state)
{
	static const struct {
		uint32_t ip_mtu;
		unsigned mtu;
	} cases[] = {
		{ 0, 0 },    { 339, 0 },  { 340, 1 },  { 1280, 3 }, { 1500, 3 },
		{ 2131, 3 }, { 2132, 4 }, { 4179, 4 }, { 4180, 5 }, { 65536, 5 }
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(snt__udp_mtu(cases[i].ip_mtu), cases[i].mtu);
}

static void sockaddrs(void **state)
{
	uint8_t link_local[16] = { 0xfe, 0x80, [15] = 1 }, back[16];
	union snt__udp_sockaddr name;

	(void)state;
	assert_int_equal(snt__udp_sockaddr(link_local, 7, 4791, &name),
			 sizeof(name.v6));
	assert_int_equal(name.v6.sin6_scope_id, 7);
	assert_int_equal(ntohs(name.v6.sin6_port), 4791);
	snt__udp_gid(&name, back);
	assert_memory_equal(back, link_local, 16);
	snt__udp_loopback_gid(4, link_local);
	assert_int_equal(snt__udp_sockaddr(link_local, 7, 4791, &name),
			 sizeof(name.v4));
	snt__udp_gid(&name, back);
	assert_memory_equal(back, link_local, 16);
}

/*
 * Ports that are taken
 */

static uint32_t taken_until; /* 127.0.0.x, all up to this */
static uint32_t absent_from; /* and none has those from here on; 0: all exist */

int __real_bind(int fd, const struct sockaddr *name, socklen_t size);
int __wrap_bind(int fd, const struct sockaddr *name, socklen_t size);

int __wrap_bind(int fd, const struct sockaddr *name, socklen_t size)
{
	const struct sockaddr_in *v4 = (const void *)name;

	if (name->sa_family != AF_INET)
		return __real_bind(fd, name, size);
	if (ntohl(v4->sin_addr.s_addr) <= taken_until) {
		errno = EADDRINUSE;
		return -1;
	}
	if (absent_from && ntohl(v4->sin_addr.s_addr) >= absent_from) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	return __real_bind(fd, name, size);
}

static bool module_loaded; /* as far as anybody can see */

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);

int __wrap_access(const char *path, int mode)
{
	if (strcmp(path, "/sys/module/rdma_rxe"))
		return __real_access(path, mode);
	errno = ENOENT;
	return module_loaded ? 0 : -1;
}

static int open_soft(const char *where, struct snt_ctx **ctx_out)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .soft = SNT_SOFT_ONLY,
				     .soft_addresses = where };

	return snt_ctx_create(&opts, ctx_out);
}

static uint32_t address_of(struct snt_ctx *ctx, unsigned device)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };
	uint32_t address;

	assert_success(snt_device_query_gid(snt_ctx_device(ctx, device), 0, &gid));
	memcpy(&address, gid.raw + 12, sizeof(address));
	return ntohl(address);
}

/* The first pair of which both are free. */
static void next_pair(void **state)
{
	unsigned fds = count_fds();
	struct snt_ctx *ctx;

	(void)state;
	taken_until = 0x7f000001;
	assert_success(open_soft(NULL, &ctx));
	assert_true(address_of(ctx, 0) >= 0x7f000003);
	assert_int_equal(address_of(ctx, 0) % 2, 1);
	assert_int_equal(address_of(ctx, 1), address_of(ctx, 0) + 1);
	assert_success(snt_ctx_destroy(ctx));
	assert_int_equal(count_fds(), fds);
}

static void no_pair(void **state)
{
	unsigned fds = count_fds();
	struct snt_ctx *ctx;

	(void)state;
	taken_until = UINT32_MAX;
	assert_error(open_soft(NULL, &ctx), EADDRINUSE,
		     "UDP port 4791 is taken on all loopback addresses, by");
	assert_error(open_soft("127.5.5.5", &ctx), EADDRINUSE,
		     "UDP port 4791 is taken on 127.5.5.5, by");
	taken_until = 0;
	assert_int_equal(count_fds(), fds);
}

/* Hosts whose loopback interface has one address and not all of 127.0.0.0/8. */
static void one_loopback_address(void **state)
{
	unsigned fds = count_fds();
	struct snt_ctx *ctx;

	(void)state;
	absent_from = 0x7f000002;
	assert_error(open_soft(NULL, &ctx), EADDRNOTAVAIL,
		     "no socket can be bound to 127.0.0.");
	assert_error(open_soft("127.5.5.6", &ctx), EADDRNOTAVAIL,
		     "no socket can be bound to 127.5.5.6; is its interface up?");
	absent_from = 0;
	assert_int_equal(count_fds(), fds);
}

/* What another program would have. */
static int occupy(const char *where)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(4791) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(inet_pton(AF_INET, where, &name.sin_addr), 1);
	assert_success(__real_bind(fd, (struct sockaddr *)&name, sizeof(name)));
	return fd;
}

/* Really taken. */
static void taken(void **state)
{
	char both[2 * SNT__GID_TEXT], sentence[128];
	struct snt_ctx *ctx;
	int fd;

	(void)state;
	taken_until = 0;
	snprintf(both, sizeof(both), "%s,%s", loopback_text(1), loopback_text(0));
	snprintf(sentence, sizeof(sentence), "is taken on %s, by another program",
		 loopback_text(0));
	fd = occupy(loopback_text(0));
	assert_error(open_soft(both, &ctx), EADDRINUSE, sentence);
	close(fd);
	assert_success(open_soft(both, &ctx));
	assert_int_equal(snt_ctx_device_count(ctx), 2);
	assert_success(snt_ctx_destroy(ctx));
}

/* Modules are to be seen from all network namespaces, their ports only in one. */
static void module_is_not_to_blame(void **state)
{
	unsigned fds = count_fds();
	struct snt_ctx *ctx;
	int fd;

	(void)state;
	module_loaded = true;
	fd = occupy(loopback_text(0));
	assert_error(open_soft(loopback_text(0), &ctx), EADDRINUSE,
		     "by another program");
	close(fd);
	taken_until = UINT32_MAX;
	assert_error(open_soft(loopback_text(0), &ctx), EADDRINUSE,
		     "by the kernel module rdma_rxe");
	assert_error(open_soft(NULL, &ctx), EADDRINUSE, "rdma_rxe");
	taken_until = 0;
	module_loaded = false;
	assert_int_equal(count_fds(), fds);
}

/* Every context has its own. */
static void many_contexts(void **state)
{
	struct snt_ctx *ctx[8];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(ctx); i++)
		assert_success(open_soft(NULL, &ctx[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(ctx); i++)
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(address_of(ctx[i], 0),
					     address_of(ctx[j], 0));
	for (unsigned i = 0; i < ARRAY_SIZE(ctx); i++)
		assert_success(snt_ctx_destroy(ctx[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists),
		cmocka_unit_test(zones),
		cmocka_unit_test(loopback),
		cmocka_unit_test(mtus),
		cmocka_unit_test(sockaddrs),
		cmocka_unit_test(next_pair),
		cmocka_unit_test(no_pair),
		cmocka_unit_test(one_loopback_address),
		cmocka_unit_test(taken),
		cmocka_unit_test(module_is_not_to_blame),
		cmocka_unit_test(many_contexts),
	};

	return cmocka_run_group_tests_name("udp_address", tests, NULL, NULL);
}
