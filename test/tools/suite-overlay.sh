# suite-overlay.sh: copies of a Debian release that forget what is done in them.
# For scripts that build and install packages; sourced, not run.
#
#   suite_namespaces "$0" "$@"     runs the script again, with its own mounts and
#                                  processes: the machine sees no mount, and all
#                                  of it ends with the script, however that ends;
#                                  OUTBOX_SUITE_WORK is a directory for the time.
#                                  Another such script waits meanwhile: the folders,
#                                  what apt has fetched and the ports 5432 and 5672 are the same
#   suite_folder SUITE             makes the release's folder if there is none;
#                                  SUITE.minbase is one with nothing but apt in it
#   suite_overlay SUITE DIR        mounts a copy of it at DIR/root; sets $root
#   inside COMMAND...              in $root, as root
#   as USER COMMAND...             in $root, as somebody else, home /build
#   apt_install PACKAGE...
#
# The folders are those of test-matrix, MATRIX_DIR/SUITE, and are never written to:
# an overlay is in the way.  MATRIX_DIR/cache keeps the packages that were fetched.

suites_dir=${MATRIX_DIR:-/var/tmp/outbox-matrix}
mirror=${MATRIX_MIRROR:-http://deb.debian.org/debian}
root=

suite_fail() {
	echo "${0##*/}: $*" >&2
	exit 1
}

suite_namespaces() {
	local status=0

	[ -z "${OUTBOX_SUITE_WORK:-}" ] || return 0
	[ "$(id -u)" -eq 0 ] || suite_fail "needs root, for chroot and mount"
	mkdir -p "$suites_dir"
	exec 7>"$suites_dir/lock"
	flock -n 7 || { echo "${0##*/}: waits for another one that works in $suites_dir"; flock 7; }
	OUTBOX_SUITE_WORK=$(mktemp -d /var/tmp/outbox-suite.XXXXXX)
	export OUTBOX_SUITE_WORK
	chmod 755 "$OUTBOX_SUITE_WORK"
	# it holds SIGTERM back until its child is gone
	trap 'kill -KILL "$!" 2>/dev/null || :; wait || :; rm -rf --one-file-system "$OUTBOX_SUITE_WORK"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	unshare --mount --pid --ipc --fork --kill-child --mount-proc \
		--propagation private -- "$@" &
	wait "$!" || status=$?
	exit "$status"
}

suite_folder() {
	local suite=${1%.minbase} dir=$suites_dir/$1 script=/usr/share/debootstrap/scripts/${1%.minbase}

	[ ! -x "$dir/usr/bin/apt-get" ] || return 0
	command -v debootstrap >/dev/null || suite_fail "debootstrap is not installed"
	# an older one does not know the names of newer releases, which it treats alike
	[ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
	mkdir -p "$suites_dir/cache/$suite/partial"
	rm -rf --one-file-system "$dir.new"
	debootstrap --variant=minbase --cache-dir="$suites_dir/cache/$suite" \
		"$suite" "$dir.new" "$mirror" "$script"
	mv "$dir.new" "$dir"
}

suite_overlay() {
	local suite=${1%.minbase} dir=$2

	mkdir -p "$dir/upper" "$dir/work" "$dir/root" "$suites_dir/cache/$suite/partial"
	root=$dir/root
	mount -t overlay overlay \
		-o "lowerdir=$suites_dir/$1,upperdir=$dir/upper,workdir=$dir/work" "$root"
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs tmpfs "$root/dev/shm"
	mount --bind "$suites_dir/cache/$suite" "$root/var/cache/apt/archives"
	mkdir -p "$root/build" "$root/etc/postgresql-common/createcluster.d"
	cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || :
	# what apt thinks of the network and the clock here is true in there
	{
		apt-config dump | grep -E '^Acquire::(http|https|Check)' | grep -v ' "";$' || :
		echo 'APT::Keep-Downloaded-Packages "true";'
	} >"$root/etc/apt/apt.conf.d/90suite"
	echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/suite"
	# nothing that is installed starts by itself
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	echo 'create_main_cluster = false' \
		>"$root/etc/postgresql-common/createcluster.d/suite.conf"
	inside apt-get -q update
}

inside() {
	env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		LC_ALL=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
}

as() {
	local user=$1

	shift
	inside setpriv --reuid="$user" --regid="$user" --init-groups -- env HOME=/build "$@"
}

apt_install() {
	inside apt-get -q -y --no-install-recommends -o Dpkg::Use-Pty=0 install "$@"
}
