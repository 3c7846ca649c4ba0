/* SPDX-License-Identifier: MIT */
/* Where peers reach a listener: on soft devices, to which they connect, and on devices of a
 * made-up libibverbs, which have all kinds of addresses. */
#include "lib/conn_kit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/devices/verbs_fake.h"

static const char *address_at(const struct snt_listener *listener, unsigned position)
{
	static char text[SNT_ADDRESS_MAX];

	assert_success(snt_listener_address(listener, position, text, sizeof(text)));
	return text;
}

static void expect_end(const struct snt_listener *listener, unsigned count)
{
	char text[SNT_ADDRESS_MAX];

	assert_int_equal(snt_listener_address(listener, count, text, sizeof(text)),
			 -ENOENT);
}

/*
 * Soft devices
 */

static const enum snt_carrier carriers[] = { SNT_CARRIER_CM, SNT_CARRIER_TCP };

/* Each of the addresses leads to it. */
static void listener_on_all_is_reached_at_every_device(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		char host[2][SNT_ADDRESS_MAX];

		for (unsigned position = 0; position < 2; position++) {
			struct kit kit;

			kit_open(&kit, carriers[i], 2);
			kit.at.host = NULL;
			kit_listen(&kit);
			strcpy(host[position], address_at(kit.listener, position));
			expect_end(kit.listener, 2);
			kit.to.host = host[position];
			kit_connect(&kit);
			kit_until(&kit, kit_both_up);
			kit_check_data(&kit, 0);
			kit_disconnect(&kit);
			if (!position)
				assert_string_equal(host[0], kit.end[1].address);
			kit_close(&kit);
		}
		assert_string_not_equal(host[0], host[1]);
	}
}

static void listener_on_one_address_has_that_alone(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct kit kit;

		kit_open(&kit, carriers[i], 2);
		kit_listen(&kit);
		assert_string_equal(address_at(kit.listener, 0), kit.end[1].address);
		expect_end(kit.listener, 1);
		kit_close(&kit);
	}
}

static void address_that_does_not_fit(void **state)
{
	char text[SNT_ADDRESS_MAX] = "untouched";
	size_t length;
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_CM, 1);
	kit_listen(&kit);
	length = strlen(kit.end[1].address);
	assert_error(snt_listener_address(kit.listener, 0, text, length), ENOSPC,
		     "needs");
	assert_error(snt_listener_address(kit.listener, 0, text, 0), ENOSPC, "needs");
	assert_string_equal(text, "untouched");
	assert_success(snt_listener_address(kit.listener, 0, text, length + 1));
	assert_string_equal(text, kit.end[1].address);
	assert_error(snt_listener_address(kit.listener, 1, text, sizeof(text)), ENOENT,
		     "no address 1: the listener has 1");
	kit_close(&kit);
}

static void stream_listener_has_the_same(void **state)
{
	struct snt_stream_listener *listener;
	char text[SNT_ADDRESS_MAX];
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_CM, 2);
	assert_success(
		snt_stream_listener_create(kit.end[1].loop, NULL, NULL, &listener));
	assert_success(snt_stream_listener_address(listener, 0, text, sizeof(text)));
	assert_string_equal(text, kit.end[1].address);
	assert_success(snt_stream_listener_address(listener, 1, text, sizeof(text)));
	assert_int_equal(snt_stream_listener_address(listener, 2, text, sizeof(text)),
			 -ENOENT);
	assert_success(snt_stream_listener_destroy(listener));
	kit_close(&kit);
}

/*
 * Devices of all kinds, by TCP
 */

struct fakes {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_listener *listener;
};

static void listen_on_fakes(struct fakes *fakes, const char *host)
{
	struct snt_ctx_opts opts = SNT_INIT(opts, .soft = SNT_SOFT_NEVER);
	struct snt_endpoint at = SNT_INIT(at, .host = host, .carrier = SNT_CARRIER_TCP);

	assert_success(snt_ctx_create(&opts, &fakes->ctx));
	assert_success(snt_loop_create(fakes->ctx, NULL, &fakes->loop));
	assert_success(snt_listener_create(fakes->loop, &at, NULL, &fakes->listener));
}

static void close_fakes(struct fakes *fakes)
{
	assert_success(snt_listener_destroy(fakes->listener));
	assert_success(snt_loop_destroy(fakes->loop));
	assert_success(snt_ctx_destroy(fakes->ctx));
	fake_reset();
}

static bool has_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	bool can = fd >= 0 && !bind(fd, (struct sockaddr *)&any, sizeof(any));

	if (fd >= 0)
		close(fd);
	return can;
}

/* Loopback and link-local addresses come last, whatever the order of devices; one address
 * of two devices comes once; and a link-local address has no scope. */
static void addresses_that_are_routed_come_first(void **state)
{
	static const char *const both[] = { "192.0.2.7", "2001:db8::7", "127.0.0.9",
					    "fe80::9", NULL };
	static const char *const ipv4[] = { "192.0.2.7", "127.0.0.9", NULL };
	static const char *const gids[] = { "fe80::9", "127.0.0.9", "2001:db8::7",
					    "192.0.2.7", "192.0.2.7" };
	const char *const *expected = has_ipv6() ? both : ipv4;
	struct fakes fakes;
	unsigned count = 0;

	(void)state;
	fake_reset();
	for (unsigned i = 0; i < 5; i++) {
		char name[] = { 'm', (char)('0' + i), '\0' };

		fake_set_gid(&fake_add(name, 1)->port[0], 0, IBV_GID_TYPE_ROCE_V2,
			     gids[i]);
	}
	listen_on_fakes(&fakes, NULL);
	for (; expected[count]; count++)
		assert_string_equal(address_at(fakes.listener, count), expected[count]);
	expect_end(fakes.listener, count);
	close_fakes(&fakes);
}

/* What the listener does not hear is not offered, although lanes have it. */
static void expect_ipv4_alone(const char *host)
{
	struct fake_device *fake;
	struct fakes fakes;

	fake_reset();
	fake = fake_add("first", 1);
	fake_set_gid(&fake->port[0], 0, IBV_GID_TYPE_ROCE_V2, "2001:db8::1");
	fake_set_gid(&fake->port[0], 1, IBV_GID_TYPE_ROCE_V1, "192.0.2.1");
	listen_on_fakes(&fakes, host);
	assert_string_equal(address_at(fakes.listener, 0), "192.0.2.1");
	expect_end(fakes.listener, 1);
	close_fakes(&fakes);
}

static void listener_of_ipv4_has_no_ipv6_addresses(void **state)
{
	(void)state;
	expect_ipv4_alone("0.0.0.0");
}

/* A socket of IPv6 that hears IPv4 alone. */
static void listener_of_mapped_ipv4_has_no_ipv6_addresses(void **state)
{
	(void)state;
	if (has_ipv6())
		expect_ipv4_alone("::ffff:0.0.0.0");
}

/* IPv4 addresses of the interface below a soft device of IPv6 do not lead to the device. */
static void device_of_ipv6_has_no_ipv4_addresses_by_cm(void **state)
{
	struct snt_ctx_opts opts =
		SNT_INIT(opts, .soft = SNT_SOFT_ONLY, .soft_addresses = "::1");
	struct snt_endpoint at = SNT_INIT(at, .host = "0.0.0.0");
	struct snt_listener *listener;
	struct snt_loop *loop;
	struct snt_ctx *ctx;
	int ret;

	(void)state;
	if (!has_ipv6())
		return;
	ret = snt_ctx_create(&opts, &ctx);
	/* Another program may have a soft device there. */
	if (ret == -EADDRINUSE || ret == -EADDRNOTAVAIL)
		return;
	assert_success(ret);
	assert_success(snt_loop_create(ctx, NULL, &loop));
	assert_success(snt_listener_create(loop, &at, NULL, &listener));
	expect_end(listener, 0);
	assert_success(snt_listener_destroy(listener));
	assert_success(snt_loop_destroy(loop));
	assert_success(snt_ctx_destroy(ctx));
}

static bool is_on_loopback(const struct ifaddrs *interfaces, const char *text)
{
	for (const struct ifaddrs *at = interfaces; at; at = at->ifa_next) {
		char found[INET_ADDRSTRLEN];

		if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET)
			continue;
		inet_ntop(AF_INET, &((struct sockaddr_in *)at->ifa_addr)->sin_addr,
			  found, sizeof(found));
		if (!strcmp(found, text))
			return at->ifa_flags & IFF_LOOPBACK;
	}
	fail_msg("no interface has %s", text);
	return false;
}

/* GIDs of InfiniBand are no addresses: interfaces have some, and loopback comes last. */
static void devices_without_addresses_leave_it_to_interfaces(void **state)
{
	bool was_on_loopback = false;
	struct ifaddrs *interfaces;
	struct fake_device *fake;
	struct fakes fakes;
	unsigned position = 0;
	char text[SNT_ADDRESS_MAX];

	(void)state;
	fake_reset();
	fake = fake_add("ib", 1);
	fake->port[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
	fake_set_gid(&fake->port[0], 0, IBV_GID_TYPE_IB, "fe80::2:c903:1:2");
	listen_on_fakes(&fakes, "0.0.0.0");
	assert_int_equal(getifaddrs(&interfaces), 0);
	for (; !snt_listener_address(fakes.listener, position, text, sizeof(text));
	     position++) {
		bool on_loopback = is_on_loopback(interfaces, text);

		assert_true(on_loopback || !was_on_loopback);
		was_on_loopback = on_loopback;
	}
	freeifaddrs(interfaces);
	assert_true(position > 0 && was_on_loopback);
	close_fakes(&fakes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(listener_on_all_is_reached_at_every_device),
		cmocka_unit_test(listener_on_one_address_has_that_alone),
		cmocka_unit_test(address_that_does_not_fit),
		cmocka_unit_test(stream_listener_has_the_same),
		cmocka_unit_test(addresses_that_are_routed_come_first),
		cmocka_unit_test(listener_of_ipv4_has_no_ipv6_addresses),
		cmocka_unit_test(listener_of_mapped_ipv4_has_no_ipv6_addresses),
		cmocka_unit_test(device_of_ipv6_has_no_ipv4_addresses_by_cm),
		cmocka_unit_test(devices_without_addresses_leave_it_to_interfaces),
	};

	unsetenv("SENNIT_DEVICES");
	unsetenv("SENNIT_GID");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
