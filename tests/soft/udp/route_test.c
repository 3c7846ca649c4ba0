/* SPDX-License-Identifier: MIT */
/* Which of several devices leads to an address. */
#include "lib/udp_side.h"

#include <sys/socket.h>

#include "dev/cm.h"

/* What the host's routes say; NULL: what they really do. */
static const struct snt__udp_address *routed;

int __real_getsockname(int fd, struct sockaddr *name, socklen_t *size);
int __wrap_getsockname(int fd, struct sockaddr *name, socklen_t *size);

int __wrap_getsockname(int fd, struct sockaddr *name, socklen_t *size)
{
	union snt__udp_sockaddr local;

	if (!routed)
		return __real_getsockname(fd, name, size);
	*size = snt__udp_sockaddr(routed->gid, routed->scope, 1000, &local);
	memcpy(name, &local, *size);
	return 0;
}

static void open_manager(struct side side[2], struct snt__cm **cm_out)
{
	struct snt__cm_device devices[2];
	struct snt__cm_opts opts = { .devices = devices, .device_count = 2 };

	for (unsigned i = 0; i < 2; i++) {
		side_open(&side[i], 2 * i + 1, NULL);
		devices[i] = (struct snt__cm_device){ side[i].context, 1 };
	}
	assert_success(snt__cm_soft.open(&opts, cm_out));
}

/* The address from which a target would be connected to. */
static void expect_source(struct snt__cm *cm, const struct snt__udp_address *target,
			  const struct side *side)
{
	union snt__udp_sockaddr to, expected;
	struct sockaddr_storage local, peer;
	struct snt__cm_id *id;

	snt__udp_sockaddr(target->gid, 0, 7000, &to);
	assert_success(snt__cm_soft.resolve(cm, NULL, &to.any, 0, &id));
	snt__cm_soft.addresses(id, &local, &peer);
	snt__udp_sockaddr(side->device->address.gid, 0, 0, &expected);
	assert_memory_equal(&((struct sockaddr_in *)&local)->sin_addr,
			    &expected.v4.sin_addr, 4);
	snt__cm_soft.destroy(id);
}

/* The host knows its routes. An address that looks like ours may be behind a router at the
 * other end of the house. */
static void routes_decide(void **state)
{
	struct snt__udp_address target = side_address(2), stranger = side_address(7);
	struct side side[2];
	struct snt__cm *cm;

	(void)state;
	open_manager(side, &cm);
	for (unsigned i = 0; i < 2; i++) {
		routed = &side[i].device->address;
		expect_source(cm, &target, &side[i]);
	}
	/* No device of ours: what is most like the target. */
	routed = &stranger;
	expect_source(cm, &target, &side[1]);
	routed = NULL;
	assert_success(snt__cm_soft.close(cm));
	sides_close(side);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(routes_decide),
	};

	return cmocka_run_group_tests_name("udp_route", tests, NULL, NULL);
}
