//! Connecting to a cluster.

use std::sync::Arc;
use std::time::Duration;

use terrane_env::trace::Tracer;
use terrane_types::{ClusterId, FamilyName, FamilySchema, TableName, TableSchema};

use crate::api::admin::Admin;
use crate::api::admin::spec::TableSpec;
use crate::api::core::Core;
use crate::api::table::Table;
use crate::error::Error;
use crate::route::budget::RetryBudget;
use crate::route::counters::Counters;
use crate::route::hedge::Hedging;
use crate::route::observe::{Metrics, Observer};
use crate::route::router::Router;
use crate::wire::masters::Masters;

/// The default timeout of a call.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// The default timeout of connecting.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// A connection to one cluster. Cheap to clone; clones share connections, the location cache and the counters.
///
/// A client belongs to the cluster that it found first. If another cluster answers at the same addresses later, calls fail
/// with [`Error::WrongCluster`] and nothing is written.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("cluster", &self.cluster_id()).finish()
    }
}

impl Client {
    /// Connects to a cluster. `to` lists its masters, as `HOST:PORT,HOST:PORT`, or is a connection string with settings,
    /// `terrane://HOST:PORT,HOST:PORT/?timeout=5s`: see [`ClientBuilder::from_url`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for malformed addresses or settings, [`Error::Unreachable`] when no master answers.
    pub async fn connect(to: &str) -> Result<Self, Error> {
        let builder = if to.contains("://") { ClientBuilder::from_url(to)? } else { Self::builder().masters(to) };
        builder.build().await
    }

    /// Builds a client with settings.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Opens a table. `meta`, the table of all regions, can be opened like any other and is read-only.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such table; see [`Error`].
    pub async fn table(&self, name: &str) -> Result<Table, Error> {
        let parsed = TableName::new(name)?;
        let schema =
            if parsed.is_meta() { meta_schema(parsed)? } else { self.core.describe(name, self.core.timeout).await? };
        Ok(Table::new(Arc::clone(&self.core), schema))
    }

    /// Opens a table, and creates it first if it does not exist. An existing table is opened as it is, whatever the
    /// specification says; [`Admin::alter_table`] changes it, and [`Client::open_or_create_exact`] refuses it. Several programs
    /// may call this at once.
    ///
    /// ```no_run
    /// use terrane_client::{Client, TableSpec};
    /// # async fn run(client: Client) -> Result<(), terrane_client::Error> {
    /// let users = client.open_or_create(TableSpec::new("users")?.family("info", &[])?).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Client::table`] and [`Admin::create_table`].
    pub async fn open_or_create(&self, spec: TableSpec) -> Result<Table, Error> {
        let name = spec.schema.name.to_string();
        match self.table(&name).await {
            Err(Error::NotFound { .. }) => {}
            found => return found,
        }
        match self.admin().create_table(spec).await {
            // Another program may have created it meanwhile, which is as good.
            Ok(_) | Err(Error::AlreadyExists { .. }) => self.table(&name).await,
            Err(error) => Err(error),
        }
    }

    /// Opens a table like [`Client::open_or_create`], unless it differs from the specification: in an attribute, a family or
    /// its key. Where it is split does not count. So a program learns at its start that the table is not the one that it was
    /// written for.
    ///
    /// # Errors
    /// As for [`Client::open_or_create`]; [`Error::Differs`], which names each difference.
    pub async fn open_or_create_exact(&self, spec: TableSpec) -> Result<Table, Error> {
        let wanted = spec.schema.clone();
        let table = self.open_or_create(spec).await?;
        let differences = table.schema().differences(&wanted);
        if !differences.is_empty() {
            return Err(Error::Differs { what: format!("table {}", wanted.name), differences });
        }
        Ok(table)
    }

    /// The administrator's calls: tables, servers, regions.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.core))
    }

    /// This client's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.core.router.counting.read()
    }

    /// Closes the client and all its clones: waits until the calls in flight have ended, each within its own deadline, and
    /// ends the sessions. Later calls fail with [`Error::Closed`]. Close writers first: rows that they have not sent yet are
    /// refused like any other call. A scan that is being read ends with an error at its next block.
    ///
    /// Dropping the last clone instead ends everything immediately.
    pub async fn close(&self) {
        self.core.router.close().await;
    }

    /// The cluster this client belongs to.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        self.core.router.cluster
    }
}

fn meta_schema(name: TableName) -> Result<TableSchema, Error> {
    let mut schema = TableSchema::new(name);
    schema.read_only = true;
    schema.add_family(FamilySchema::new(FamilyName::new("info")?))?;
    Ok(schema)
}

/// Settings of a client.
#[derive(Clone)]
pub struct ClientBuilder {
    masters: String,
    timeout: Duration,
    connect_timeout: Duration,
    retry_budget: RetryBudget,
    hedge_reads: bool,
    metrics: Option<Arc<dyn Metrics>>,
    tracer: Tracer,
    cluster: Option<ClusterId>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            masters: "127.0.0.1:7600".to_owned(),
            timeout: TIMEOUT_DEFAULT,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            retry_budget: RetryBudget::default(),
            hedge_reads: false,
            metrics: None,
            tracer: Tracer::default(),
            cluster: None,
        }
    }
}

impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("masters", &self.masters)
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("retry_budget", &self.retry_budget)
            .field("hedge_reads", &self.hedge_reads)
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// The masters, as `HOST:PORT,HOST:PORT`; `127.0.0.1:7600` by default.
    #[must_use]
    pub fn masters(mut self, masters: &str) -> Self {
        masters.clone_into(&mut self.masters);
        self
    }

    /// The timeout of each call, waits and retries included; 30 seconds by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long connecting may take; 5 seconds by default, and never more than the timeout.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How much of the load may be retries; [`RetryBudget::default`] by default.
    #[must_use]
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.retry_budget = budget;
        self
    }

    /// Whether a stale read ([`crate::Consistency::Stale`]) is also sent to a second member when the first takes longer than
    /// most reads do; the first answer counts. Off by default. It adds up to one read in twenty, and none while the retry
    /// budget is spent.
    #[must_use]
    pub fn hedge_reads(mut self, hedge: bool) -> Self {
        self.hedge_reads = hedge;
        self
    }

    /// A hook that is called for every call; none by default.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Records the spans of traced calls, and decides which calls begin a trace; by default nothing is recorded, and only calls
    /// inside [`crate::trace::traced`] belong to a trace. See [`crate::trace`].
    #[must_use]
    pub fn tracer(mut self, tracer: Tracer) -> Self {
        self.tracer = tracer;
        self
    }

    /// The only cluster to connect to; by default any that answers.
    #[must_use]
    pub fn cluster(mut self, cluster: ClusterId) -> Self {
        self.cluster = Some(cluster);
        self
    }

    /// Connects: finds a master and learns the cluster's id from it.
    ///
    /// # Errors
    /// As for [`Client::connect`]; [`Error::WrongCluster`] when another cluster answers than the one that was set.
    pub async fn build(self) -> Result<Client, Error> {
        let boot = terrane_env::rand::u64();
        let masters = Masters::new(&self.masters, boot)?;
        let cluster = masters.identify(self.cluster, self.connect_timeout.min(self.timeout)).await?;
        let masters = masters.of_cluster(cluster);
        let hedging = self.hedge_reads.then(Hedging::new);
        let core = Core {
            router: Router::new(
                cluster,
                masters,
                boot,
                self.retry_budget,
                hedging,
                Observer::new(self.metrics, self.tracer),
            ),
            timeout: self.timeout,
        };
        Ok(Client { core: Arc::new(core) })
    }
}
