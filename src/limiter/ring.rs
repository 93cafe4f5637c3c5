//! The nodes of a ring, and how they come and go.

use tokio::sync::oneshot;

use super::{Limiter, Store};
use crate::error::{Error, ErrorKind};
use crate::store::cluster::{Engine, Router};
use crate::store::ring::{Change, Member, Place};
use crate::sync::Arc;

/// The ring that a limiter keeps its limits on: who belongs to it, and how that changes. See [`Limiter::ring`].
///
/// What is changed here is changed for every client of the ring, within seconds. Keys whose node is another one then are brought there
/// with all they have, by whoever asks for them first, and by this process, which waits until nothing is left to be brought. Calls
/// go on meanwhile.
///
/// ```no_run
/// # async fn run(limiter: shardlimit::Limiter) -> Result<(), shardlimit::Error> {
/// let Some(ring) = limiter.ring()? else { return Ok(()) };
/// ring.add("redis://10.0.0.4:6379").await?;
/// ring.remove("10.0.0.1:6379").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Ring {
    engine: Arc<Engine>,
    router: Arc<Router>,
}

/// A node of a ring.
///
/// ```no_run
/// # fn run(ring: shardlimit::Ring) {
/// for node in ring.nodes() {
///     println!("{} has a part of {}", node.name, node.weight);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingNode {
    /// `host:port`, or the Sentinels' name for the master.
    pub name: String,
    /// Its part of the keys, against those of the others.
    pub weight: u16,
    /// Where it is now; `None` if its Sentinels have not said.
    pub address: Option<String>,
    /// Whether Sentinels watch over it.
    pub has_sentinels: bool,
}

/// Needs the feature `redis`.
impl Limiter {
    /// The ring that the limits are on; `None` for a limiter on another store. Starts to watch it, as the first call would.
    ///
    /// # Errors
    /// When no thread for a runtime can be had.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let limiter = Limiter::builder().ring(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"]).build()?;
    /// assert!(limiter.ring()?.is_some());
    /// assert!(Limiter::local().ring()?.is_none());
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn ring(&self) -> Result<Option<Ring>, Error> {
        let Store::Shared(shared) = &self.0.store else { return Ok(None) };
        let Some(router) = shared.engine.transport.ring() else { return Ok(None) };
        shared.engine.start()?;
        Ok(Some(Ring { engine: Arc::clone(&shared.engine), router }))
    }
}

impl Ring {
    /// The nodes that form the ring, in the order of their names; none until one of them has answered.
    ///
    /// ```no_run
    /// # fn run(ring: shardlimit::Ring) {
    /// println!("{} nodes", ring.nodes().len());
    /// # }
    /// ```
    #[must_use]
    pub fn nodes(&self) -> Vec<RingNode> {
        let Some(ring) = self.router.ring() else { return Vec::new() };
        let show = |member: &Member| RingNode {
            name: member.name.to_string(),
            weight: member.weight,
            address: ring.address_of(member).map(|address| address.to_string()),
            has_sentinels: matches!(member.place, Place::Sentinels(_)),
        };
        ring.known().map_or_else(Vec::new, |known| known.record.members.iter().map(show).collect())
    }

    /// Whether this process was told of other nodes than form the ring. The ring's own count.
    ///
    /// ```no_run
    /// # fn run(ring: shardlimit::Ring) {
    /// if ring.differs() {
    ///     eprintln!("the list in our settings is not that of the ring");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn differs(&self) -> bool {
        self.router.ring().is_some_and(crate::store::ring::Ring::differs)
    }

    /// Whether everything is where it belongs: no change is under way, or was left half done.
    ///
    /// ```no_run
    /// # fn run(ring: shardlimit::Ring) {
    /// println!("settled: {}", ring.is_settled());
    /// # }
    /// ```
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.router.ring().and_then(crate::store::ring::Ring::known).is_some_and(|known| known.record.is_settled())
    }

    /// Adds a node, or gives one another weight or other Sentinels, and waits until what belongs there is there: some seconds, and as
    /// long as it takes to look through the keys of all nodes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`] for what is no node; [`ErrorKind::Refused`] if the last change is not settled, this one
    /// changes nothing, or somebody else changed the ring meanwhile; [`ErrorKind::NotSent`] if not more than half of the nodes answer: then
    /// nothing has changed; [`ErrorKind::Unknown`] if they answered at first, and then too few did: the change may be in force, and
    /// [`settle`](Self::settle) finishes it, or the next change finds it.
    ///
    /// # Cancel safety
    /// It goes on.
    ///
    /// ```no_run
    /// # async fn run(ring: shardlimit::Ring) -> Result<(), shardlimit::Error> {
    /// ring.add("redis://10.0.0.4:6379*2").await
    /// # }
    /// ```
    pub async fn add(&self, node: &str) -> Result<(), Error> {
        let (member, _) = Member::read(node)?;
        self.change(Some(Change::Add(member))).await
    }

    /// Removes a node that still answers, and waits until all it has is where it belongs.
    ///
    /// # Errors
    /// As [`add`](Self::add). A node that does not answer can't hand over what it has: the change is not settled then.
    ///
    /// # Cancel safety
    /// It goes on.
    ///
    /// ```no_run
    /// # async fn run(ring: shardlimit::Ring) -> Result<(), shardlimit::Error> {
    /// ring.remove("10.0.0.1:6379").await
    /// # }
    /// ```
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        self.change(Some(Change::Remove(name.to_owned()))).await
    }

    /// Removes a node that is gone for good, with all it had. Until this is said its shares stay lent, and the limits are that much
    /// smaller: it may come back. From then on they are lent anew, with nothing in them, and keys that had their home there begin
    /// anew, or as the clients that use them remember them.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    /// It goes on.
    ///
    /// ```no_run
    /// # async fn run(ring: shardlimit::Ring) -> Result<(), shardlimit::Error> {
    /// ring.remove_lost("10.0.0.1:6379").await
    /// # }
    /// ```
    pub async fn remove_lost(&self, name: &str) -> Result<(), Error> {
        self.change(Some(Change::Lost(name.to_owned()))).await
    }

    /// Finishes a change that was left half done, by this process or another. Nothing to do if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::NotSent`] if a node that has to hand something over does not answer.
    ///
    /// # Cancel safety
    /// It goes on.
    ///
    /// ```no_run
    /// # async fn run(ring: shardlimit::Ring) -> Result<(), shardlimit::Error> {
    /// ring.settle().await
    /// # }
    /// ```
    pub async fn settle(&self) -> Result<(), Error> {
        self.change(None).await
    }

    /// On the limiter's runtime: the caller may be on any, or on none.
    async fn change(&self, change: Option<Change>) -> Result<(), Error> {
        let (router, (say, done)) = (Arc::clone(&self.router), oneshot::channel());
        self.engine.spawn(async move {
            let Some(ring) = router.ring() else { return };
            let _ = say.send(match change {
                Some(change) => ring.change(&router, change).await,
                None => ring.settle(&router).await,
            });
        })?;
        let ended =
            |_| Error::new(ErrorKind::Unknown, "ring", "the limiter was shut down; settle the ring with another");
        done.await.map_err(ended)?
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("nodes", &self.nodes()).finish_non_exhaustive()
    }
}
